"""Reads PyTorch profiler traces."""
