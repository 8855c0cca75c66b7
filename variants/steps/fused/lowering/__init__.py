"""From the blocks of a model to the operations of its step: fused, or part by part."""
