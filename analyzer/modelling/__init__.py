"""The bytes and FLOPs of each role of a model's step, from its config.json."""
