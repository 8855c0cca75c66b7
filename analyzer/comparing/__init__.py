"""Which variant is faster, how sure that is, and what changed."""
