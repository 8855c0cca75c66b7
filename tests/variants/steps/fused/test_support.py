import runpy
import sys
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model.source import presets, read_config, tiny_folder
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import find_variant
from decodescope.variants.spec import NARROW_WEIGHTS, VariantSpec, WeightFormat
from decodescope.variants.steps.fused.support import (
    require_support,
    unsupported_fields,
    unsupported_gpu,
)
from tests.helpers.families import CONFIGS, FAMILIES

LLAMA = FAMILIES["llama2"]


@pytest.mark.parametrize("name", CONFIGS)
def test_every_family_is_supported(name: str) -> None:
    require_support(name, CONFIGS[name], 16, "cpu")


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_supported(name: str) -> None:
    require_support(name, presets()[name].config, 1, "cpu")


def test_the_config_of_a_checkpoint_is_read_as_it_is() -> None:
    fields = read_config(tiny_folder() / "config.json")
    before = dict(fields)
    assert unsupported_fields(fields) is None
    assert fields == before


@pytest.mark.parametrize(
    ("family", "changed", "reason"),
    [
        ("llama2", {"model_type": "gemma"}, "model_type gemma"),
        (
            "gemma3",
            {"hidden_activation": "silu"},
            "hidden_activation silu (only gelu_py",
        ),
        ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma4", {"use_bidirectional_attention": "all"}, "use_bidirectional_attention all"),
        (
            "gemma4-inputs",
            {"vocab_size_per_layer_input": 100},
            "vocab_size_per_layer_input 100 (only vocab_size, 101, or more)",
        ),
        ("gemma4", {"global_head_dim": 600}, "global_head_dim 600 (only even ones from 32 to 512)"),
        (
            "gemma4",
            {"num_global_key_value_heads": 3},
            "num_attention_heads 4 (only a multiple of num_global_key_value_heads, 3)",
        ),
        (
            "gemma4",
            {"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}
            | {"hidden_size_per_layer_input": 24},
            "enable_moe_block with hidden_size_per_layer_input (only one of them)",
        ),
        ("llama2", {"model_type": "no-such-type"}, "model_type no-such-type"),
        ("llama2", {"model_type": None}, "model_type None"),
        ("llama2", {"model_type": "qwen3_next"}, "model_type qwen3_next"),
        ("llama2", {"hidden_act": "gelu"}, "hidden_act gelu (only silu)"),
        ("llama2", {"hidden_act": "gelu", "hidden_activation": "silu"}, "hidden_act gelu"),
        ("llama2", {"head_dim": 16}, "head_dim 16"),
        ("llama2", {"head_dim": 514}, "head_dim 514"),
        ("qwen2", {"hidden_size": 99, "num_attention_heads": 3}, "head_dim 33"),
        ("llama2", {"num_key_value_heads": 2}, "num_attention_heads 3 (only a multiple of num_"),
        ("rope-linear", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        (
            "llama2",
            {"quantization_config": {"quant_method": "hqq"}},
            "a checkpoint quantized by hqq with quantization_config.quant_method hqq (only",
        ),
        ("llama2", {"sliding_window": 8}, "sliding_window 8 in a llama model"),
        (
            "llama2",
            {"layer_types": ["sliding_attention"] * 2},
            "layer_types with sliding_attention",
        ),
        ("glm", {"sliding_window": 3}, "sliding_window 3 in a glm model"),
        ("glm4-moe", {"sliding_window": 3}, "sliding_window 3 in a glm4_moe model"),
        ("olmo2", {"sliding_window": 3}, "sliding_window 3 in a olmo2 model"),
        ("llama2", {"attention_chunk_size": 4}, "attention_chunk_size 4 (only full and sliding"),
        ("llama2", {"num_key_value_heads": 0}, "num_key_value_heads 0 (only positive integers)"),
        ("qwen2-moe", {"num_key_value_heads": None}, "num_key_value_heads None (only positive"),
        ("qwen3-moe", {"head_dim": 2.5}, "head_dim 2.5 (only positive integers)"),
        (
            "glm4",
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": "x"}},
            "partial_rotary_factor 'x' (only numbers)",
        ),
        ("gemma2", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar -1 (only positive"),
        ("mistral", {"layer_types": ["sliding_attention"] * 2}, "layer_types in a mistral model"),
        (
            "phi3",
            {"layer_types": ["full_attention"] * 2},
            "layer_types other than sliding_attention in a phi3 model of window 7",
        ),
        ("mixtral", {"layer_types": ["full_attention"] * 2}, "layer_types other"),
        (
            "llama2",
            {"per_layer_config": {"1": {"hidden_act": "gelu", "num_key_value_heads": 1}}},
            "per_layer_config with hidden_act, num_key_value_heads (only layers that are alike)",
        ),
        (
            "gemma4",
            {"per_layer_config": {"1": {"head_dim": 48, "rms_norm_eps": 0.1}}},
            "per_layer_config with rms_norm_eps (only layers that are alike)",
        ),
        (
            "qwen3-moe",
            {"layer_types": ["sliding_attention"] * 2},
            "layer_types other than full_attention in a qwen3_moe model of window None",
        ),
        ("phi3", {"partial_rotary_factor": 0.29}, "partial_rotary_factor 0.29 of head_dim 32"),
        (
            "qwen3",
            {"layer_types": ["full_attention", "chunked_attention"]},
            "layer_types with chunked",
        ),
        ("qwen3-moe", {"num_experts_per_tok": 9}, "num_experts_per_tok 9 of 7 experts"),
        ("qwen2-moe", {"num_experts_per_tok": 7}, "num_experts_per_tok 7 of 6"),
        ("glm4-moe", {"n_group": 5}, "n_group 5 (only experts in one group)"),
        ("glm4-moe", {"topk_group": 0}, "topk_group 0 (only experts in one group)"),
        ("glm4-moe", {"norm_topk_prob": False}, "norm_topk_prob false (only weights that are"),
        ("mixtral", {"num_experts_per_tok": 0}, "num_experts_per_tok 0 of 4"),
        ("granite", {"logits_scaling": 0.0}, "logits_scaling 0 (logits are divided by it)"),
        ("gpt-oss", {"num_local_experts": 0}, "num_local_experts 0 (only models with experts)"),
        ("gpt-oss", {"num_experts_per_tok": 6}, "num_experts_per_tok 6 of 5"),
        ("gemma4-moe", {"top_k_experts": 6}, "top_k_experts 6 of 5"),
        ("gemma4-moe", {"num_experts": None}, "enable_moe_block with num_experts None"),
        ("gemma4-moe", {"top_k_experts": None}, "enable_moe_block with top_k_experts None"),
    ],
)
def test_what_cannot_run_is_named(family: str, changed: dict[str, Any], reason: str) -> None:
    fields = CONFIGS[family] | changed
    assert (unsupported_fields(fields) or "").startswith(reason)
    with pytest.raises(ModelError, match=r"mine: the fused kernels cannot run .*another variant"):
        require_support("mine", fields, 1, "cpu")


def test_experts_have_no_activations_in_fp8() -> None:
    spec = VariantSpec.parse("fused+w8a8")
    with pytest.raises(ModelError, match="cannot run experts with activations in FP8"):
        require_support("mine", CONFIGS["mixtral"], 1, "cpu", spec)
    require_support("mine", FAMILIES["mistral"], 1, "cpu", spec)
    for runs in ("fused+kv_fp8_e4m3-qkv", "fused+fp8_e4m3-gate_up", "fused+int8+head16"):
        require_support("mine", CONFIGS["mixtral"], 1, "cpu", VariantSpec.parse(runs))


def test_experts_with_rows_of_inputs_are_not_quantised() -> None:
    with pytest.raises(ModelError, match="cannot run gpt_oss with weights in int8"):
        require_support("mine", CONFIGS["gpt-oss"], 1, "cpu", VariantSpec.parse("fused+int8"))


def test_experts_that_are_stored_narrow_are_refused() -> None:
    fields = CONFIGS["qwen3-moe"] | {"quantization_config": {"quant_method": "fbgemm_fp8"}}
    with pytest.raises(ModelError, match="experts in fp8_e4m3 by quantization_config"):
        require_support("mine", fields, 1, "cpu")


@pytest.mark.parametrize(
    ("family", "changed"),
    [
        ("llama2", {"hidden_act": "swish"}),
        ("llama2", {"hidden_activation": "gelu"}),
        ("llama2", {"head_dim": 256}),
        ("gemma4", {"use_bidirectional_attention": "vision"}),
        ("gemma4", {"vocab_size_per_layer_input": 100}),
        ("llama2", {"rope_parameters": None, "rope_theta": 1e4}),
        ("llama2", {"quantization_config": {"quant_method": "fbgemm_fp8"}}),
        ("phi3", {"layer_types": ["sliding_attention"] * 2}),
        ("qwen3-moe", {"layer_types": ["full_attention"] * 2}),
        ("qwen3", {"sliding_window": 8, "use_sliding_window": False}),
    ],
)
def test_what_only_looks_unusual_can_run(family: str, changed: dict[str, Any]) -> None:
    assert unsupported_fields(CONFIGS[family] | changed) is None


def test_all_reasons_come_at_once() -> None:
    fields = LLAMA | {"hidden_act": "relu", "num_key_value_heads": 2}
    assert unsupported_fields(fields) == (
        "hidden_act relu (only silu), num_attention_heads 3 (only a multiple of "
        "num_key_value_heads, 2)"
    )


def test_a_broken_config_is_left_to_loading() -> None:
    assert unsupported_fields(LLAMA | {"num_attention_heads": "three"}) is None
    # transformers takes the parameters of all kinds of layers away.
    assert unsupported_fields(FAMILIES["gemma4"] | {"rope_scaling": None}) is None


def test_at_most_sixteen_sequences() -> None:
    with pytest.raises(InputError, match=r"--batch 65: .* at most 64"):
        require_support("llama2", LLAMA, 65, "cpu")


@pytest.mark.parametrize(("capability", "runs"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpus_older_than_ampere_are_refused(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], runs: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    assert (unsupported_gpu(capability) is None) == runs
    if runs:
        require_support("llama2", LLAMA, 1, "cuda")
    else:
        with pytest.raises(MissingRequirement, match=r"Tesla T4: .* 8\.0, this GPU has 7\.5"):
            require_support("llama2", LLAMA, 1, "cuda")


@pytest.mark.parametrize(
    ("capability", "spec", "runs"),
    [
        ((8, 0), "fused+fp8_e4m3", False),
        ((8, 6), "fused+w8a8", False),
        ((8, 6), "fused+fp8_e5m2+kv_fp8_e4m3", False),
        ((8, 9), "fused+w8a8+kv_fp8_e4m3", True),
        ((9, 0), "fused+graph+fp8_e4m3", True),
        ((8, 0), "fused+fp8_e5m2+kv_fp8_e5m2", True),
        ((8, 0), "fused+fp8_e5m2_cast", True),
        ((8, 0), "fused+int8", True),
    ],
)
def test_only_e4m3_needs_conversion_instructions(
    capability: tuple[int, int], spec: str, runs: bool
) -> None:
    parsed = VariantSpec.parse(spec)
    reason = unsupported_gpu(capability, {parsed.weight_format, parsed.kv_format})
    assert (reason is None) == runs
    if reason is not None:
        assert reason == (
            f"FP8 in E4M3 needs compute capability 8.9, this GPU has {capability[0]}."
            f"{capability[1]}; choose weights in fp8_e5m2 or int8, which every supported GPU "
            "converts"
        )


@pytest.mark.parametrize("word", NARROW_WEIGHTS)
def test_every_word_for_e4m3_elements_needs_them(word: WeightFormat) -> None:
    refused = unsupported_gpu((8, 6), {word}) is not None
    assert refused == (NARROW_WEIGHTS[word].elements in ("fp8_e4m3", "nvfp4"))


@pytest.mark.parametrize(("method", "runs"), [("fbgemm_fp8", False), ("compressed-tensors", True)])
def test_a_checkpoint_in_e4m3_needs_them_too(
    method: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "an A10")
    groups = {"group_0": {"weights": {"type": "int", "strategy": "channel"}}}
    fields = LLAMA | {"quantization_config": {"quant_method": method, "config_groups": groups}}
    if runs:
        require_support("llama2", fields, 1, "cuda")
    else:
        with pytest.raises(MissingRequirement, match=r"an A10: FP8 in E4M3 needs .* has 8\.6"):
            require_support("llama2", fields, 1, "cuda")


def test_the_variants_check_refuses_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "an A100")
    fields = presets()["llama-3.2-1b"].config
    asked = "m", fields, DecodeWorkload(), "cuda"
    check = find_variant("fp8").check
    assert check is not None
    with pytest.raises(MissingRequirement, match=r"^an A100: FP8 in E4M3 needs .* has 8\.0"):
        check(*asked)
    check = find_variant("fused+graph+int8").check
    assert check is not None
    check(*asked)


def test_a_missing_triton_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    # The module that reports it must itself load without Triton.
    loaded = runpy.run_path(require_support.__code__.co_filename)
    with pytest.raises(MissingRequirement, match="the fused kernels need Triton"):
        loaded["require_support"]("llama2", LLAMA, 1, "cpu")
