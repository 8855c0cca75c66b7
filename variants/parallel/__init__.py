"""Tensor parallelism: one model over several ranks."""
