"""Where the figures of TK-GEMM were published."""

from benchmarks.claims.report import Source

SOURCE = Source(
    title='"Accelerating Llama3 FP8 Inference with Triton Kernels" (Hoque, Wright, Yang; PyTorch)',
    url="https://pytorch.org/blog/accelerating-llama3/",
    gpu="H100",
    name="TK-GEMM (PyTorch)",
)
