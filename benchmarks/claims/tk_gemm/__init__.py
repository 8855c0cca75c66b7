"""TK-GEMM, the FP8 split-K GEMM of Llama-3-70B: the products, their launches, and the layer."""
