"""RMSNorm as a ladder of kernels, beside a CUDA one and a device copy."""
