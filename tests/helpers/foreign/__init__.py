"""Hand-made files in the formats of other profilers."""
