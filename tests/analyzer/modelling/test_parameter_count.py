"""Parameter counts: of the bundled models as published, of families as transformers builds them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from decodescope.analyzer.modelling.config import bundled_models, model_shape, read_model_config
from decodescope.variants.model.source import presets
from tests.helpers.modelling.parameters import parameter_count

# Millions of parameters, and where they are published. Where a document rounds to billions, the
# figure is as exact as it gives.
PUBLISHED = {
    "Llama-3.2-1B": (1_240, "Llama 3.2 model card: 1.23B; release: 1.24B"),
    "Llama-3.2-3B": (3_210, "Llama 3.2 model card: 3.21B"),
    "Llama-3.1-8B": (8_030, "Llama 3 model card: 8.03B"),
    "Llama-3.1-70B": (70_600, "Llama 3 model card: 70.6B"),
    "Llama-3.1-405B": (406_000, "Hugging Face, Llama-3.1-405B: 406B"),
    "Llama-2-7b": (6_740, "Hugging Face, Llama-2-7b-hf: 6.74B"),
    "Mistral-7B-v0.3": (7_250, "Hugging Face, Mistral-7B-v0.3: 7.25B"),
    "Mixtral-8x7B": (46_700, "mistral.ai, Mixtral of experts: 46.7B"),
    "Mixtral-8x22B": (141_000, "mistral.ai, Cheaper, better, faster, stronger: 141B"),
    "Qwen2.5-0.5B": (490, "Qwen2.5-0.5B model card: 0.49B"),
    "Qwen2.5-1.5B": (1_540, "Qwen2.5-1.5B model card: 1.54B"),
    "Qwen2.5-3B": (3_090, "Qwen2.5-3B model card: 3.09B"),
    "Qwen2.5-7B": (7_610, "Qwen2.5-7B model card: 7.61B"),
    "Qwen2.5-14B": (14_700, "Qwen2.5-14B model card: 14.7B"),
    "Qwen2.5-32B": (32_500, "Qwen2.5-32B model card: 32.5B"),
    "Qwen2.5-72B": (72_700, "Qwen2.5-72B model card: 72.7B"),
    "Qwen3-0.6B": (600, "Qwen3-0.6B model card: 0.6B"),
    "Qwen3-4B": (4_000, "Qwen3-4B model card: 4.0B"),
    "Qwen3-8B": (8_200, "Qwen3-8B model card: 8.2B"),
    "Qwen3-14B": (14_800, "Qwen3-14B model card: 14.8B"),
    "Qwen3-32B": (32_800, "Qwen3-32B model card: 32.8B"),
    "Qwen3-30B-A3B": (30_500, "Qwen3-30B-A3B model card: 30.5B"),
    "Qwen3-235B-A22B": (235_000, "Qwen3-235B-A22B model card: 235B"),
    "Qwen3-Next-80B-A3B": (80_000, "Qwen3-Next-80B-A3B model card: 80B"),
    "gpt-oss-20b": (20_910, "gpt-oss model card (arXiv 2508.10925): 20.91B"),
    "gpt-oss-120b": (116_830, "gpt-oss model card (arXiv 2508.10925): 116.83B"),
    "gemma-2-9b": (9_240, "Hugging Face, gemma-2-9b: 9.24B"),
    "gemma-2-27b": (27_200, "Hugging Face, gemma-2-27b: 27.2B"),
    "Qwen3.5-397B-A17B": (397_000, "Qwen3.5-397B-A17B model card: 397B"),
    "GLM-4.7-Flash": (30_000, "GLM-4.7-Flash model card: 30B"),
    "Llama-4-Scout-17B-16E": (108_000, "Llama 4 model card: 109B, with about 1B for images"),
    "gemma-3-27b-it": (27_000, "Gemma 3 report (arXiv 2503.19786): 25,600M + 1,416M"),
    "gemma-4-26B-A4B-it": (25_200, "Gemma 4 model card: 25.2B"),
    "gemma-4-31B-it": (30_700, "Gemma 4 model card: 30.7B"),
    "DeepSeek-V3": (671_000, "DeepSeek-V3 report (arXiv 2412.19437): 671B"),
    "phi-4": (14_700, "Hugging Face, phi-4: 14.7B"),
}

# Small models of each family, with sizes that no two fields share.
_SMALL = {
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 4,
    "vocab_size": 311,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "pad_token_id": 0,
}
_MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 56}
_MLA = {
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 20,
    "num_key_value_heads": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
_DELTA = {
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "num_experts": 8,
    "shared_expert_intermediate_size": 72,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "mistral": ("mistral", {}),
    "qwen2": ("qwen2", {"head_dim": None}),
    "qwen3": ("qwen3", {}),
    "phi3": ("phi3", {"head_dim": None}),
    "gemma2": ("gemma2", {}),
    "gemma3": ("gemma3_text", {}),
    "gemma4": (
        "gemma4_text",
        {
            "hidden_size_per_layer_input": 0,
            "global_head_dim": 48,
            "attention_k_eq_v": True,
            "num_global_key_value_heads": 1,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "gemma4 with inputs": (
        "gemma4_text",
        {
            "hidden_size_per_layer_input": 28,
            "vocab_size_per_layer_input": 311,
            "global_head_dim": 48,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "gemma4 with experts": (
        "gemma4_text",
        {
            "hidden_size_per_layer_input": 0,
            "global_head_dim": 48,
            "enable_moe_block": True,
            "num_experts": 8,
            "top_k_experts": 2,
            "moe_intermediate_size": 56,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        },
    ),
    "gemma4 with experts that it does not use": (
        "gemma4_text",
        {
            "hidden_size_per_layer_input": 0,
            "num_experts": 8,
            "top_k_experts": 2,
            "moe_intermediate_size": 56,
            "layer_types": ["full_attention"] * 4,
        },
    ),
    "olmo2": ("olmo2", {"head_dim": None}),
    "glm4": ("glm4", {"attention_bias": True}),
    "starcoder2": ("starcoder2", {"head_dim": None, "use_bias": True}),
    "mixtral": ("mixtral", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 8, "num_experts_per_tok": 2}),
    "qwen3_moe": ("qwen3_moe", {**_MOE, "num_experts": 8, "mlp_only_layers": [2]}),
    "qwen3_moe, every second": ("qwen3_moe", {**_MOE, "num_experts": 8, "decoder_sparse_step": 2}),
    "qwen2_moe": (
        "qwen2_moe",
        {**_MOE, "num_experts": 8, "shared_expert_intermediate_size": 72, "head_dim": None},
    ),
    "glm4_moe": (
        "glm4_moe",
        {
            **_MOE,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "deepseek_v3": ("deepseek_v3", {**_MOE, **_MLA, "q_lora_rank": 40}),
    "deepseek_v2 without q_lora_rank": ("deepseek_v2", {**_MOE, **_MLA, "q_lora_rank": None}),
    "qwen3_next": ("qwen3_next", {**_MOE, **_DELTA}),
    "qwen3_5_moe": ("qwen3_5_moe_text", {**_MOE, **_DELTA}),
    "glm4_moe_lite": ("glm4_moe_lite", {**_MOE, **_MLA, "q_lora_rank": 40, "head_dim": 8}),
    "llama4": (
        "llama4_text",
        {
            "num_local_experts": 8,
            "num_experts_per_tok": 1,
            "intermediate_size_mlp": 120,
            "interleave_moe_layer_step": 2,
        },
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_models_have_their_published_size(name: str) -> None:
    millions, source = PUBLISHED[name]
    assert source
    tolerance = 0.01 if millions >= 600 else 0.011
    assert parameter_count(read_model_config(name)) == pytest.approx(millions * 1e6, rel=tolerance)


def test_bundled_models_agree_with_the_presets() -> None:
    agreed = 0
    for preset in presets().values():
        shape = read_model_config(preset.hub_id)
        assert parameter_count(shape) == preset.parameters
        assert shape.hidden == preset.config["hidden_size"]
        assert shape.head_dim == preset.config["head_dim"]
        agreed += 1
    assert agreed == 15


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_that_transformers_makes_is_counted(family: str, tmp_path: Path) -> None:
    """Through a config.json, as `save_pretrained` writes it."""
    kind, changes = FAMILIES[family]
    config = _config(kind, changes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path)
    shape = read_model_config(str(tmp_path))
    buffers = sum(
        one.numel() for name, one in model.named_buffers() if name.endswith("correction_bias")
    )
    assert parameter_count(shape) == sum(one.numel() for one in model.parameters()) + buffers


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_that_a_published_file_leaves_out_have_the_defaults_of_the_class(
    family: str, tmp_path: Path
) -> None:
    kind, changes = FAMILIES[family]
    full = _config(kind, changes)
    fields = {**_SMALL, **changes, "model_type": kind}
    if kind in ("gemma2", "gemma3_text", "gpt_oss"):
        for field in ("layer_types", "tie_word_embeddings", "sliding_window"):
            fields.pop(field, None)
    shape = model_shape(fields, "small", "config.json")
    full.save_pretrained(tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert parameter_count(shape) == parameter_count(read_model_config(str(tmp_path)))
    if "layer_types" in said and None not in (said["layer_types"], said.get("sliding_window")):
        kinds = [f"{one}_attention" for one in shape.layers]
        assert kinds == said["layer_types"]


def _config(kind: str, changes: dict[str, Any]) -> Any:
    given = {key: value for key, value in {**_SMALL, **changes}.items() if value is not None}
    config = transformers.AutoConfig.for_model(kind, **given)
    for key, value in changes.items():
        if value is None and key != "head_dim":
            setattr(config, key, None)
    return config


def test_every_bundled_model_says_where_its_figures_are_from() -> None:
    models = bundled_models()
    assert len(models) >= 35
    assert all(model.source for model in models.values())
