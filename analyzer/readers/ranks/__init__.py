"""Merges the traces of several ranks on one clock."""
