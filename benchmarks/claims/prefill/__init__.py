"""Triton kernels at prefill sizes (A100): RMSNorm, its residual, SwiGLU, and INT8 products."""
