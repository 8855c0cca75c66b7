"""Decode steps of other projects, measured beside ours where they are installed."""
