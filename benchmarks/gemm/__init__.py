"""`gemm`: products with FP8 and INT8 weights."""
