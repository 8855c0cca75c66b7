"""kernl's fused Triton kernels for Llama 2, each beside the PyTorch sequence that it replaced."""
