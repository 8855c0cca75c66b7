"""`tune`: the fastest tiles of the fused step on this GPU."""
