"""Captures windows of decode steps with torch.profiler."""
