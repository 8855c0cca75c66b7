"""Busy and idle time, gaps and their classes, launches, steps."""
