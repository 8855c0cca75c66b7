"""Which variant is faster, how certain that is, and what changed."""
