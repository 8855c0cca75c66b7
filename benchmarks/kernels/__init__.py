"""`kernels`: each kernel of the fused step alone."""
