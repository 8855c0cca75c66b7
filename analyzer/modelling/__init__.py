"""What a model's step must move and compute, from its config.json: bytes and FLOPs of each role."""
