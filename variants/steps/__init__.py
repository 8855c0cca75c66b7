"""The decode steps of all variants, and what they share."""
