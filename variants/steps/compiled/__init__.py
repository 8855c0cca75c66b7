"""The compiled step: torch.compile with CUDA graphs, and the origins of its kernels."""
