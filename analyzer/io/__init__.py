"""Files and processes: where output goes, whole or not at all, and what outlives no process."""
