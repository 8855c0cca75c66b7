"""Tests on a GPU, and kernels under compute-sanitizer, with a record."""
