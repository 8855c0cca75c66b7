"""Fuzzing the command line: seeded cases of several kinds, and what must hold after each."""
