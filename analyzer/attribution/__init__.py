"""Which range of the model each GPU op belongs to, also in CUDA graph replays."""
