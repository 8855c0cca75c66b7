"""Bytes of stored matrices, `--weights`, and quantization_config."""

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import model_shape, read_model_config
from decodescope.analyzer.modelling.weight_formats import FORMATS, weight_format
from decodescope.analyzer.modelling.weights import kv_element_bytes, model_weights

LLAMA = read_model_config("llama-3.1-8b")
GPT_OSS = read_model_config("gpt-oss-20b")


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("bf16", 16),
        ("fp16", 16),
        ("fp32", 32),
        # One fp32 scale for each of 4,096 inputs; for 128 x 128 elements.
        ("fp8", 8 + 32 / 4096),
        ("int8", 8 + 32 / 4096),
        ("fp8-block", 8 + 32 / 16384),
        # An fp16 scale, and a zero point of 4 bits, for 128 elements.
        ("int4", 4 + 16 / 128),
        ("awq", 4 + 20 / 128),
        ("int4-g64", 4 + 16 / 64),
        # OCP Microscaling: 4.25 bits; NVFP4: 4.5 bits.
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
        ("mxfp8", 8.25),
    ],
)
def test_bits_of_a_weight(name: str, bits: float) -> None:
    assert weight_format(name).matrix_bytes(4096, 4096) == bits * 4096 * 4096 / 8


@given(st.sampled_from(sorted(FORMATS)), st.integers(1, 400), st.integers(1, 400))
def test_a_matrix_has_its_elements_and_the_scale_of_each_block(
    name: str, rows: int, columns: int
) -> None:
    """Against a walk over the elements of the matrix: the blocks that they are in."""
    found = FORMATS[name]
    height, width = found.block_rows or rows, found.block_columns or columns
    blocks = len({(row // height, 0) for row in range(rows)}) * len(
        {column // width for column in range(columns)}
    )
    bits = rows * columns * found.bits + blocks * (8 * found.scale_bytes + found.zero_bits)
    assert found.matrix_bytes(rows, columns) == ceil(Fraction(bits, 8))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("FP8", "fp8"),
        ("w8a8", "fp8"),
        ("w4a16", "int4"),
        ("fp8_e4m3", "fp8"),
        ("INT4_g32", "int4-g32"),
        ("awq-g64", "awq-g64"),
        ("bfloat16", "bf16"),
        ("fp4", "nvfp4"),
    ],
)
def test_names_of_formats(text: str, name: str) -> None:
    assert weight_format(text).name == name


@pytest.mark.parametrize("text", ["", "int5", "fp8-g64", "int4-g0", "\x1b[2J", "bf16-g128"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(InputError) as error:
        weight_format(text)
    assert "\x1b" not in str(error.value)


def test_a_format_is_that_of_the_layers_matrices() -> None:
    found = model_weights(LLAMA, "fp8")
    assert [found.of(part).name for part in ("attention", "mlp", "experts")] == ["fp8"] * 3
    assert (found.head.name, found.embedding.name, found.kv_element_bytes) == ("bf16", "bf16", 2)


def test_parts_have_formats_of_their_own() -> None:
    found = model_weights(LLAMA, " fp8, head=int8 ,kv=fp8_e4m3,mlp=int4-g64")
    assert [found.attention.name, found.mlp.name, found.head.name] == ["fp8", "int4-g64", "int8"]
    assert found.kv_element_bytes == 1


def test_mxfp4_is_a_format_of_experts() -> None:
    for found in (model_weights(GPT_OSS), model_weights(GPT_OSS, "mxfp4")):
        assert (found.experts.name, found.attention.name) == ("mxfp4", "bf16")
    assert model_weights(LLAMA, "mxfp4").attention.name == "mxfp4"


@pytest.mark.parametrize("text", ["fp8,nose=int8", "=fp8", "fp8,kv=int3", "fp8,", "kv", "head"])
def test_other_parts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        model_weights(LLAMA, text)


def test_kv_formats() -> None:
    assert [kv_element_bytes(name) for name in ("bf16", "fp8", "FP8-E5M2", "fp32")] == [2, 1, 1, 4]


def stored(**quantization: Any) -> Any:
    fields = {
        "model_type": "llama",
        "hidden_size": 256,
        "intermediate_size": 640,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 512,
        "quantization_config": quantization,
    }
    return model_weights(model_shape(fields, "m", "config.json"))


def scheme(**weights: Any) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }


@pytest.mark.parametrize(
    ("quantization", "bytes_of_256_x_256"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 65536 + 4 * 4),
        ({"quant_method": "fp8"}, 65536 + 4),
        ({"quant_method": "fbgemm_fp8"}, 65536 + 256 * 4),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
            32768 + 512 * 2 + 256,
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 32768 + 512 * 2),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1, "sym": True}, 65536 + 256 * 2),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 32768 + 256 * 4 * 4),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 32768 + 256 * 16),
        ({"quant_algo": "FP8"}, 65536 + 4),
        (scheme(num_bits=8, type="float", strategy="channel", symmetric=True), 65536 + 256 * 4),
        (
            scheme(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True),
            32768 + 512 * 2,
        ),
        (scheme(num_bits=4, type="int", strategy="group", group_size=128), 32768 + 512 * 2),
        (scheme(num_bits=4, type="float", strategy="tensor_group", group_size=16), 32768 + 4096),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
            },
            65536 + 4,
        ),
    ],
)
def test_quantization_config(quantization: dict[str, Any], bytes_of_256_x_256: int) -> None:
    found = stored(**quantization)
    assert found.attention.matrix_bytes(256, 256) == bytes_of_256_x_256
    assert found.mlp == found.attention
    assert found.head.name == "bf16"


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "hqq"},
        {"quant_method": 5},
        {"bits": 4},
        {"quant_method": "fp8", "weight_block_size": [128]},
        {"quant_method": "fp8", "weight_block_size": [0, 128]},
        {"quant_method": "gptq", "bits": "4"},
        {"quant_method": "gptq", "bits": 4.0},
        {"quant_method": "awq", "group_size": None, "bits": [4]},
        {"quant_method": "compressed-tensors", "config_groups": []},
        scheme(num_bits=5),
        {"quant_method": "quark", "global_quant_config": {"weight": []}},
    ],
)
def test_a_format_that_is_not_known_asks_for_the_option(quantization: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"config\.json: .*--weights"):
        stored(**quantization)
    assert model_weights(replace(LLAMA, quantization=quantization), "fp8").mlp.name == "fp8"


def test_the_option_wins_over_the_file() -> None:
    found = model_weights(GPT_OSS, "bf16")
    assert (found.experts.name, found.attention.name) == ("bf16", "bf16")


@pytest.mark.parametrize(
    ("excluded", "name"),
    [
        (["lm_head", "*self_attn*"], "bf16"),
        (["model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"], "bf16"),
        (["model.layers.0.self_attn.q_proj", "lm_head"], "nvfp4"),
        ("lm_head", "nvfp4"),
    ],
)
def test_attention_that_is_not_quantised(excluded: Any, name: str) -> None:
    found = stored(quant_method="modelopt", quant_algo="NVFP4", exclude_modules=excluded)
    assert (found.attention.name, found.mlp.name) == (name, "nvfp4")


def test_a_checkpoint_whose_experts_alone_are_quantised() -> None:
    """The `ignore` of Kimi-K2.5: attention, the shared experts and the dense MLP stay in bf16."""
    ignored = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(up)_proj.*"]
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
    quantization = {**scheme(**weights, symmetric=True), "ignore": ignored}
    shape = replace(read_model_config("deepseek-v3"), quantization=quantization)
    found = model_weights(shape)
    names = [found.of(part).name for part in ("attention", "mlp", "experts", "head")]
    assert names == ["bf16", "bf16", "int4-g32", "bf16"]
