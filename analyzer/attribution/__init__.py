"""Which range of the model every GPU op belongs to, also in a CUDA graph replay."""
