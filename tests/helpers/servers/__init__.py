"""Servers on a port of this machine that behave as a test says."""
