from functools import cache
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.shape import StepShape
from decodescope.analyzer.modelling.step_work import role_work
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.model_costs import captured_model
from decodescope.kernels.host.packing import PACKED_FORMATS
from decodescope.variants.model.mxfp4_experts import packed_experts
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import planned_weights
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets
from decodescope.variants.model.workload_costs import KvBytes, model_bytes, weight_bytes_read
from decodescope.variants.spec import VariantSpec
from tests.helpers.recordings import capture

# Parameter counts as the model cards give them.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
    "mistral-7b": 7_241_732_096,
    "qwen3-30b-a3b": 30_532_122_624,
    "phi-4-mini": 3_836_021_760,
    "olmo-2-1b": 1_484_916_736,
    "gemma-3-4b": 3_880_263_168,
    "gemma-4-e2b": 4_628_569_344,
    "gemma-4-26b-a4b": 25_233_141_760,
    "gemma-4-31b": 30_697_345_280,
    "gpt-oss-20b": 20_914_757_184,
}


@cache
def built(name: str) -> Any:
    return build_random(presets()[name].config, "meta", torch.bfloat16)


def test_every_preset_is_a_published_size() -> None:
    assert {name: preset.parameters for name, preset in presets().items()} == PUBLISHED


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_transformers_builds_the_same_shape(name: str) -> None:
    preset = presets()[name]
    model = built(name)
    config = model.config
    packed = sum(experts.elements for _, experts in packed_experts(model))
    assert (packed > 0) == (name == "gpt-oss-20b")
    assert packed + sum(weight.numel() for weight in model.parameters()) == PUBLISHED[name]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert preset.config["rope_parameters"].items() <= config.rope_parameters.items()
    assert config.max_position_embeddings == preset.config["max_position_embeddings"]
    assert config.rms_norm_eps == preset.config["rms_norm_eps"]
    assert getattr(config, "sliding_window", None) == preset.config.get("sliding_window")
    names = dict(model.model.layers[0].named_parameters())
    biased = preset.config["model_type"] in ("qwen2", "gpt_oss")
    assert ("self_attn.q_proj.bias" in names) == biased
    normed = preset.config["model_type"].startswith(("qwen3", "olmo", "gemma3", "gemma4"))
    assert ("self_attn.q_norm.weight" in names) == normed


def test_long_context_models_rescale_their_frequencies() -> None:
    scaled = built("llama-3.2-1b").config.rope_parameters
    assert scaled["rope_type"] == "llama3"
    assert scaled["factor"] == 32.0
    assert scaled["original_max_position_embeddings"] == 8192
    assert presets()["llama-2-7b"].config["rope_parameters"]["rope_type"] == "default"


@pytest.mark.parametrize("variant", ["fused+graph", "fused+graph+kv_fp8_e4m3"])
@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_limit_of_a_run_counts_the_weights_that_a_step_reads(name: str, variant: str) -> None:
    """Also where the checkpoint stores some of them in a narrow format."""
    read = weight_bytes_read(built(name), batch=1)
    model = captured_model(replace(capture(variant), model=f"{name}@random"))
    assert model is not None
    work = role_work(model.shape, StepShape(1, 129), model.weights)
    # Rows of gpt-oss' 4 experts have 90 scales of a byte in 96: 24 layers of gate, up and down.
    padding = 24 * 4 * 3 * 2880 * 6 if name == "gpt-oss-20b" else 0
    assert sum(role.weight_bytes for role in work.values()) == read - padding


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        *(("llama-3.2-1b", f"fused+{format}") for format in PACKED_FORMATS),
        ("llama-3.2-1b", "fused+int4+head16"),
        ("qwen3-30b-a3b", "fused+int4"),
        ("qwen3-30b-a3b", "fused+mxfp4"),
    ],
)
def test_the_limit_of_a_run_counts_weights_of_4_bits(name: str, variant: str) -> None:
    """But for the padding of a row's scales to 16 bytes."""
    quantization = quantization_of(VariantSpec.parse(variant))
    assert quantization is not None
    read = weight_bytes_read(planned_weights(name, built(name), quantization), batch=1)
    model = captured_model(replace(capture("fused+graph"), model=f"{name}@random", variant=variant))
    assert model is not None
    work = role_work(model.shape, StepShape(1, 129), model.weights)
    assert sum(role.weight_bytes for role in work.values()) == pytest.approx(read, rel=0.025)


@pytest.mark.parametrize(("words", "most"), [("+embedding16", 0.307), ("", 0.274)])
def test_memory_of_4_bits_is_that_of_their_description(words: str, most: float) -> None:
    """Of bf16's. 4 bits and a float16 for 128 columns, and the table in 16 or in 8."""
    name = "llama-3.1-8b"
    quantization = quantization_of(VariantSpec.parse(f"fused+int4{words}"))
    assert quantization is not None
    stored = model_bytes(planned_weights(name, built(name), quantization))
    table = 128_256 * 4096
    norms = 65 * 4096
    packed = PUBLISHED[name] - table - norms
    expected = packed * 33 / 64 + 2 * norms + (2 * table if words else table + 4 * 128_256)
    # Scales of 4,096 and 14,336 columns fill whole blocks of 16 bytes.
    assert stored == expected
    assert most - 0.001 < stored / (2 * PUBLISHED[name]) < most


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_limit_of_a_run_counts_the_k_and_v_of_every_layer(name: str) -> None:
    """At a length that is inside every window."""
    shape = read_model_config(presets()[name].hub_id)
    work = role_work(shape, StepShape(3, 3 * 100), model_weights(shape))
    kv = KvBytes(built(name).config, batch=3, element_bytes=2)
    assert sum(role.kv_bytes for role in work.values()) == kv.at(100)
