"""Windows of running processes: their figures beside the process's own clock, and their cost."""
