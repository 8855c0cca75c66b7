"""The decode step made of our own kernels: what it needs of a transformers model, and the step."""
