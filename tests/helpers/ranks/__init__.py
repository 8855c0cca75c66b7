"""Ranks of one run, for tests."""
