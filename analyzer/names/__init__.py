"""Names short enough to read: of kernels, ranges and files."""
