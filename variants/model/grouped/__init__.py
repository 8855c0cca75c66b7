"""Checkpoints of 4 bits: a file for each format, and one way from their codes to the kernels'."""
