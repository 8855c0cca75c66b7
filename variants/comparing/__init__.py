"""Measures variants in turn, each run in its own process, and scores their accuracy."""
