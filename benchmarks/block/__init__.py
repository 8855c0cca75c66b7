"""`block`: one attention block, eager and fused."""
