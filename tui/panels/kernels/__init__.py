"""The panels of the kernels page."""
