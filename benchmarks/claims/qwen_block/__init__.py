"""Fused Q, K, V, RoPE and KV write of Qwen2.5-0.5B: the attention block, and that launch alone."""
