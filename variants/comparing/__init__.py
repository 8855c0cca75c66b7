"""Measures variants in turn, each run in a process of its own, and scores their accuracy."""
