"""Interruptions with their causes, and the steady state: the figures without them."""
