"""`bench kernels`: how fast our kernels are on this GPU, alone and as one attention block."""
