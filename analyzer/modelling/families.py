"""Facts that classes of transformers fix by themselves: a config.json does not say them.

Everything else is read from fields. Source: the configuration and modelling files of
`transformers.models.<model_type>`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# Values that files of the family may leave out.
_TIED = {"tie_word_embeddings": True}
_GEMMA2 = {**_TIED, "head_dim": 256, "sliding_window": 4096,
           "sliding_window_pattern": 2}  # fmt: skip
_GEMMA3 = {
    **_GEMMA2, "sliding_window_pattern": 6, "vocab_size": 262208, "num_attention_heads": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
_MLA = {
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip
_DELTA_NET = {
    "head_dim": 256, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "full_attention_interval": 4,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {**_TIED, "head_dim": 256},
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "gpt_oss": {
        "sliding_window": 128, "sliding_window_pattern": 2, "head_dim": 64, "attention_bias": True,
    },
    "llama4_text": {
        "sliding_window_pattern": 4, "attention_chunk_size": 8192, "n_shared_experts": 1,
        "interleave_moe_layer_step": 1,
    },
    "deepseek_v2": _MLA,
    "deepseek_v3": {**_MLA, "q_lora_rank": 1536},
    "bloom": _TIED,
    "gpt2": _TIED,
    "gpt_bigcode": _TIED,
    "mpt": _TIED,
    "opt": _TIED,
    "starcoder2": _TIED,
    "cohere": _TIED,
    "cohere2": {**_TIED, "sliding_window": 4096, "sliding_window_pattern": 4},
    "qwen3_next": _DELTA_NET,
    "qwen3_5_text": _DELTA_NET,
    "qwen3_5_moe_text": _DELTA_NET,
}  # fmt: skip
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(_DEFAULTS)

# Q, K and V have a bias, O has none, whatever the fields say.
QKV_BIAS = frozenset({"qwen2", "qwen2_moe", "qwen2_vl_text", "qwen2_5_vl_text"})
# attention_bias is about Q, K and V only.
NO_O_BIAS = frozenset({"glm4", "glm4_moe", "glm"})
# Every head of Q and K is normed; all heads at once.
HEAD_QK_NORM = frozenset({
    "qwen3", "qwen3_moe", "qwen3_next", "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text",
    "qwen3_5_moe_text", "gemma3", "gemma3_text",
})  # fmt: skip
ALL_QK_NORM = frozenset({"olmo2", "olmo3", "minimax_m2"})
# Norms of Q and K without weights.
PLAIN_QK_NORM = frozenset({"llama4_text"})
# A norm behind attention and MLP as well.
FOUR_NORMS = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
ATTENTION_GATE = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
SINKS = frozenset({"gpt_oss"})
EXPERT_BIAS = frozenset({"gpt_oss"})
ROUTER_BIAS = frozenset({
    "gpt_oss", "deepseek_v3", "glm4_moe", "glm4_moe_lite", "kimi_k2", "minimax_m2",
})  # fmt: skip
SHARED_GATE = frozenset({"qwen2_moe", "qwen3_next", "qwen3_5_moe_text"})
# LayerNorm instead of RMSNorm.
NORM_BIAS = frozenset({
    "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "nemotron", "opt", "phi",
    "stablelm", "starcoder2",
})  # fmt: skip
# The MLP has two matrices instead of three.
UNGATED = frozenset({
    "arcee", "bloom", "falcon", "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "mpt", "nemotron",
    "opt", "phi", "starcoder2",
})  # fmt: skip
# Fields of layers whose bytes are not known here: state spaces, sparse attention, layers that
# differ, encoders, embeddings of each layer.
UNKNOWN_FIELDS = (
    "attn_layer_period", "block_configs", "cross_attention_layers", "hidden_size_per_layer_input",
    "hybrid_override_pattern", "index_topk", "mamba_d_state", "ssm_state_size", "state_size",
)  # fmt: skip
