"""Small models of every kind the fused kernels run. Their random weights differ between parts."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

ORIGINAL_MAX = 16
WINDOW = 7

_SMALL: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "intermediate_size": 136,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def _with(model_type: str, **fields: Any) -> dict[str, Any]:
    return {"model_type": model_type} | _SMALL | fields


def _rope(rope_type: str, **parameters: Any) -> dict[str, Any]:
    return _with(
        "llama",
        rope_parameters={"rope_type": rope_type, "rope_theta": 500.0, "factor": 4.0} | parameters,
    )


# Qwen2's configuration has no head_dim: it is hidden_size / num_attention_heads.
_QWEN2 = {key: value for key, value in _with("qwen2").items() if key != "head_dim"}

_GEMMA = _with(
    "gemma2",
    pad_token_id=0,
    query_pre_attn_scalar=24,
    sliding_window=WINDOW,
    tie_word_embeddings=True,
    hidden_size=99,
    num_attention_heads=3,
)

_GEMMA4 = {key: value for key, value in _GEMMA.items() if key != "query_pre_attn_scalar"} | {
    "model_type": "gemma4_text",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "global_head_dim": 48,
    "num_global_key_value_heads": 1,
    "layer_types": ["sliding_attention", "full_attention"],
    "attention_k_eq_v": True,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 5.0,
    "vocab_size_per_layer_input": 101,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 9000.0,
            "partial_rotary_factor": 0.5,
        },
    },
}

# OLMo's neither: hidden_size is a multiple of the heads.
_OLMO2 = _with(
    "olmo2",
    pad_token_id=0,
    num_attention_heads=4,
    num_key_value_heads=2,
    hidden_size=120,
    head_dim=40,
)

# Name -> config.json. The rope types that depend on length change at ORIGINAL_MAX.
FAMILIES: Mapping[str, dict[str, Any]] = {
    "llama2": _with("llama", num_key_value_heads=3),
    "llama-tied": _with(
        "llama",
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=100,
        tie_word_embeddings=True,
    ),
    "llama-odd-hidden": _with("llama", hidden_size=99, vocab_size=83, intermediate_size=131),
    "llama-biased": _with("llama", attention_bias=True, mlp_bias=True),
    "llama-head-80": _with("llama", head_dim=80),
    "llama-head-96": _with("llama", head_dim=96, num_attention_heads=2),
    "rope-linear": _rope("linear"),
    "rope-dynamic": _rope("dynamic") | {"max_position_embeddings": ORIGINAL_MAX},
    "rope-yarn": _rope("yarn", original_max_position_embeddings=ORIGINAL_MAX),
    "rope-longrope": _rope(
        "longrope",
        original_max_position_embeddings=ORIGINAL_MAX,
        short_factor=[1.0 + 0.1 * i for i in range(16)],
        long_factor=[2.0 + 0.5 * i for i in range(16)],
    ),
    "rope-llama3": _rope(
        "llama3",
        original_max_position_embeddings=ORIGINAL_MAX,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    ),
    "rope-proportional": _rope("proportional"),
    "glm": _with("glm", pad_token_id=0, attention_bias=True),
    "glm4": _with(
        "glm4",
        pad_token_id=0,
        head_dim=44,
        attention_bias=True,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 500.0,
            "partial_rotary_factor": 0.6,
        },
    ),
    "granite": _with(
        "granite",
        pad_token_id=0,
        mlp_bias=True,
        attention_bias=True,
        embedding_multiplier=3.0,
        residual_multiplier=0.6,
        attention_multiplier=0.3,
        logits_scaling=1.7,
        tie_word_embeddings=True,
    ),
    "mistral": _with("mistral", sliding_window=WINDOW),
    "mistral-no-window": _with("mistral", sliding_window=None),
    "phi3": _with("phi3", pad_token_id=0, sliding_window=WINDOW, num_key_value_heads=3),
    "cohere2": _with(
        "cohere2",
        pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"],
        sliding_window=WINDOW,
        logit_scale=0.7,
        hidden_size=99,
    ),
    "gemma2": _GEMMA
    | {
        "model_type": "gemma2",
        "layer_types": ["sliding_attention", "full_attention"],
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
    },
    "gemma2-no-caps": _GEMMA
    | {
        "model_type": "gemma2",
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "gemma3": _GEMMA
    | {
        "model_type": "gemma3_text",
        "sliding_window_pattern": 2,
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 9000.0, "factor": 8.0},
        },
    },
    "gemma4": _GEMMA4,
    "gemma4-inputs": _GEMMA4
    | {
        "attention_bias": True,
        "attention_k_eq_v": False,
        "num_global_key_value_heads": None,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 24,
        "num_kv_shared_layers": 2,
        "use_double_wide_mlp": True,
    },
    "olmo2": _OLMO2,
    "olmo2-one-head": _OLMO2 | {"num_attention_heads": 1, "num_key_value_heads": 1},
    "olmo3": _OLMO2
    | {
        "model_type": "olmo3",
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {
                "rope_type": "yarn",
                "rope_theta": 500.0,
                "factor": 4.0,
                "original_max_position_embeddings": ORIGINAL_MAX,
            },
        },
    },
    "exaone4": _OLMO2
    | {
        "model_type": "exaone4",
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "exaone4-no-window": _OLMO2
    | {"model_type": "exaone4", "sliding_window": None, "layer_types": ["full_attention"] * 2},
    "ernie": _with("ernie4_5", pad_token_id=0, use_bias=True),
    "seed-oss": _with("seed_oss", pad_token_id=0, attention_bias=True, attention_out_bias=False),
    "phi3-partial": _with("phi3", pad_token_id=0, head_dim=40, partial_rotary_factor=0.75),
    "smollm3": _with("smollm3", pad_token_id=0, no_rope_layer_interval=2),
    "qwen2": _QWEN2 | {"tie_word_embeddings": True},
    "qwen2-mixed-window": _QWEN2
    | {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    "qwen3": _with("qwen3", head_dim=48, num_attention_heads=4, num_key_value_heads=2),
    "qwen3-biased": _with("qwen3", attention_bias=True, tie_word_embeddings=True),
}

# Those whose MLP is a mixture of experts.
MIXTURES: Mapping[str, dict[str, Any]] = {
    "qwen3-moe": _with(
        "qwen3_moe",
        num_experts=7,
        num_experts_per_tok=3,
        moe_intermediate_size=20,
        norm_topk_prob=True,
    ),
    "qwen3-moe-some-dense": _with(
        "qwen3_moe",
        num_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        norm_topk_prob=True,
        num_hidden_layers=3,
        decoder_sparse_step=2,
    ),
    "qwen3-moe-of-all": _with(
        "qwen3_moe",
        num_experts=2,
        num_experts_per_tok=2,
        moe_intermediate_size=33,
        hidden_size=99,
        norm_topk_prob=False,
    ),
    "qwen3-moe-of-one": _with(
        "qwen3_moe",
        num_experts=1,
        num_experts_per_tok=1,
        moe_intermediate_size=24,
    ),
    "qwen2-moe": _QWEN2
    | {
        "model_type": "qwen2_moe",
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 20,
        "shared_expert_intermediate_size": 141,
        "qkv_bias": True,
        "num_hidden_layers": 3,
        "mlp_only_layers": [0],
    },
    "glm4-moe": _with(
        "glm4_moe",
        pad_token_id=0,
        head_dim=44,
        attention_bias=True,
        use_qk_norm=True,
        n_routed_experts=5,
        num_experts_per_tok=2,
        moe_intermediate_size=20,
        n_shared_experts=2,
        num_hidden_layers=3,
        first_k_dense_replace=1,
        routed_scaling_factor=1.7,
    ),
    "gemma4-moe": _GEMMA4
    | {
        "num_experts": 5,
        "top_k_experts": 3,
        "moe_intermediate_size": 20,
        "enable_moe_block": True,
    },
    "mixtral": _with(
        "mixtral",
        num_local_experts=4,
        num_experts_per_tok=2,
        intermediate_size=40,
        sliding_window=WINDOW,
    ),
    "gpt-oss": _with(
        "gpt_oss",
        num_local_experts=5,
        num_experts_per_tok=3,
        intermediate_size=33,
        num_attention_heads=6,
        num_key_value_heads=2,
        swiglu_limit=0.8,
        swiglu_alpha=1.6,
        sliding_window=WINDOW,
        pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 500.0,
            "factor": 4.0,
            "truncate": False,
            "original_max_position_embeddings": ORIGINAL_MAX,
        },
    ),
}
CONFIGS = {**FAMILIES, **MIXTURES}
# One of those that differ in their rotation only, and all others.
BLOCKS = [name for name in FAMILIES if name == "rope-yarn" or not name.startswith("rope-")]


def build(
    name: str,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    device: str = "cpu",
    **changes: Any,
) -> PreTrainedModel:
    """The family's transformers model, with `changes` of its configuration: weights, biases and
    norms random, logits well apart.

    The weights do not depend on `dtype`, but for rounding.
    """
    config = AutoConfig.for_model(**CONFIGS[name] | changes)
    # Experts in groups need rows of 16 bytes each.
    # Cast afterwards, a model would round its rotary frequencies too.
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, experts_implementation="eager")
    if getattr(config, "attn_logit_softcapping", None) is not None:
        model.set_attn_implementation("eager")
    _fill(model, torch.Generator().manual_seed(seed))
    return model.to(device).eval().requires_grad_(False)


@torch.no_grad()
def _fill(model: PreTrainedModel, generator: torch.Generator) -> None:
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if name.endswith("bias"):
            values *= 0.3
        elif parameter.dim() == 1:
            values = parameter.mean() + 0.2 * values
        elif "embed_tokens" in name:
            # Small beside what the layers add, or a tied head would repeat its token for ever.
            values *= 0.5
        else:
            values *= parameter.shape[-1] ** -0.5
        parameter.copy_(values)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
        elif name.endswith("layer_scalar"):
            buffer.copy_(0.5 + torch.rand(buffer.shape, generator=generator))


def prompt_ids(name: str, batch: int, length: int, seed: int = 0) -> torch.Tensor:
    """Random ids int64 [batch, length] of the family's vocabulary, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(CONFIGS[name]["vocab_size"], (batch, length), generator=generator)
