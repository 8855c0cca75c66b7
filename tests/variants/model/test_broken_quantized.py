"""Quantized checkpoints that cannot be decoded: a small one with one thing broken in each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import DecodescopeError, ModelError
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.quantized_tensors import require_usable, row_scales
from decodescope.variants.model.source import resolve_model
from decodescope.variants.steps.fused.support import require_support
from tests.helpers import families
from tests.helpers.families import FAMILIES
from tests.variants.model.broken_checkpoints import (
    NOT_WHOLE,
    Change,
    Weights,
    cast,
    cut,
    indexed,
    sharded,
    then,
    with_config,
    with_weights,
    without,
)
from tests.variants.model.quantized_checkpoints import (
    E4M3,
    E5M2,
    INT8,
    LAYOUTS,
    Layout,
    compressed_tensors,
    save_quantized,
)

DOWN = "model.layers.1.mlp.down_proj"
WEIGHT, SCALE = f"{DOWN}.weight", f"{DOWN}.weight_scale"
ROWS, COLUMNS = 96, 136
NAN, INFINITY = 0x7F, 0x7C
ROWS_FP8 = Layout(compressed_tensors({}))


def put(name: str, value: torch.Tensor) -> Change:
    """Replaces or adds a tensor."""
    return with_weights(lambda weights: weights.update({name: value.clone()}))


def in_row(value: float) -> Change:
    """Puts a value in the scale of row 3."""

    def change(weights: Weights) -> None:
        weights[SCALE][3] = value

    return with_weights(change)


def code(value: int, dtype: torch.dtype = E4M3) -> Change:
    """Puts a code in row 5 of the matrix, as elements of `dtype`."""

    def change(weights: Weights) -> None:
        codes = weights[WEIGHT].view(torch.uint8)
        codes[5, 7] = value
        weights[WEIGHT] = codes.view(dtype)

    return with_weights(change)


def scheme(**weights: Any) -> Change:
    """Another scheme of weights in config.json; the tensors stay."""
    return with_config(quantization_config=compressed_tensors(weights))


def _delete_from_index(names: dict[str, Any]) -> None:
    del names[SCALE]
    for name in [name for name, file in names.items() if file == "two.safetensors"]:
        del names[name]


BROKEN: dict[str, tuple[Change, str]] = {
    # Scales.
    "a scale of zero": (in_row(0.0), f"the scale in row 3 of {SCALE} is 0 (1 of 96"),
    "a scale below zero": (in_row(-0.5), f"the scale in row 3 of {SCALE} is -0.5"),
    "a scale that is NaN": (in_row(torch.nan), f"the scale in row 3 of {SCALE} is nan"),
    "an infinite scale": (in_row(torch.inf), f"the scale in row 3 of {SCALE} is inf"),
    "a scale beyond float32": (
        put(SCALE, torch.full((ROWS, 1), 1e300, dtype=torch.float64)),
        "the scale in row 0 of model.layers.1.mlp.down_proj.weight_scale is inf (96 of 96",
    ),
    "weights beyond float32": (in_row(1e38), f"row 3 of {WEIGHT} times its scale is "),
    "no scale": (without(SCALE), f"{WEIGHT} is F8_E4M3, but the checkpoint lacks its scale"),
    "no scales": (without("weight_scale"), "q_proj.weight is F8_E4M3, but the checkpoint lacks"),
    "scales of half the rows": (put(SCALE, torch.ones(48, 1)), f"{SCALE} is [48, 1] for 96 rows"),
    "scales of columns": (put(SCALE, torch.ones(1, COLUMNS)), f"{SCALE} is [1, 136] for 96 rows"),
    "scales of groups": (put(SCALE, torch.ones(ROWS, 17)), f"{SCALE} is [96, 17] for 96 rows"),
    "scales of blocks": (put(SCALE, torch.ones(1, 2)), f"{SCALE} is [1, 2] for 96 rows"),
    "scales of blocks as modelopt has them": (
        put(SCALE, torch.ones(1, 1, 2, 1)),
        f"{SCALE} is [1, 1, 2, 1] for 96 rows",
    ),
    "an empty scale": (put(SCALE, torch.ones(0)), f"{SCALE} is [0] for 96 rows"),
    "scales that are exponents": (
        put(SCALE, torch.ones(ROWS, 1, dtype=torch.float8_e8m0fnu)),
        f"{SCALE} is F8_E8M0",
    ),
    "scales of integers": (cast(SCALE, torch.int32), f"{SCALE} is I32"),
    "two scales": (put(f"{SCALE}_inv", torch.ones(ROWS, 1)), "has both weight_scale and"),
    "a scale of nothing": (put("model.norm.weight_scale", torch.ones(1)), "model.norm.weight_sc"),
    "a scale of 32-bit weights": (
        cast(WEIGHT, torch.float32),
        f"{SCALE} scales {WEIGHT}, which is F32",
    ),
    # Weights.
    "a code that is NaN": (code(NAN), f"NaN or infinite codes in 1 rows of {WEIGHT}, the first in"),
    "a negative NaN": (code(NAN | 0x80), f"{WEIGHT}, the first in row 5"),
    "an infinite code": (
        then(cast(WEIGHT, E5M2), code(INFINITY, E5M2)),
        f"NaN or infinite codes in 1 rows of {WEIGHT}, the first in row 5",
    ),
    "no weight": (without(WEIGHT), "lacks 1 tensor of the model"),
    "no embedding": (without("embed_tokens"), "lacks 1 tensor of the model: model.embed_tokens"),
    "NaN in a norm": (put("model.norm.weight", torch.full((96,), torch.nan)), "NaN or infinite"),
    "weights of no type we know": (
        cast(WEIGHT, torch.uint8),
        f"{SCALE} scales {WEIGHT}, which is U8",
    ),
    "another type of FP8": (
        put(WEIGHT, torch.zeros(ROWS, COLUMNS).to(torch.float8_e4m3fnuz)),
        f"{SCALE} scales {WEIGHT}, which is F8_E4M3FNUZ",
    ),
    "packed weights": (put(f"{DOWN}.weight_packed", torch.ones(3)), "weight_packed means packed"),
    "zero points": (
        put(f"{DOWN}.weight_zero_point", torch.zeros(ROWS, 1, dtype=torch.int8)),
        "weight_zero_point means zero points; only",
    ),
    "a layer of no module": (
        then(put("moe.weight", torch.ones(3, 5).to(E4M3)), put("moe.weight_scale", torch.ones(3))),
        "moe.weight is of no Linear layer that config.json describes",
    ),
    "packed FP4 that config.json does not mention": (
        then(
            with_config(quantization_config=None),
            put(WEIGHT, torch.zeros(ROWS, COLUMNS // 2, dtype=torch.uint8)),
            put(SCALE, torch.ones(ROWS, 9).to(E4M3)),
            put(f"{DOWN}.weight_scale_2", torch.ones(())),
        ),
        f"{DOWN}.weight_scale_2 means scales of scales",
    ),
    "columns in groups": (put(f"{DOWN}.weight_g_idx", torch.ones(COLUMNS)), "columns in groups"),
    "scales of scales": (put(f"{DOWN}.weight_scale_2", torch.ones(1)), "scales of scales"),
    "an embedding of 8 bits": (
        cast("model.embed_tokens.weight", E4M3),
        "embed_tokens.weight is F8_E4M3 (only F32, BF16, F16, F64)",
    ),
    "an embedding of integers": (
        cast("model.embed_tokens.weight", torch.int32),
        "embed_tokens.weight is I32 (only F32",
    ),
    "a norm of flags": (
        cast("model.norm.weight", torch.bool),
        "model.norm.weight is BOOL (only F32",
    ),
    "a matrix of integers": (cast(WEIGHT, torch.int64), f"{SCALE} scales {WEIGHT}, which is I64"),
    "a norm of 8 bits": (cast("model.norm.weight", INT8), "model.norm.weight is I8 (only F32"),
    "a transposed matrix": (
        with_weights(lambda weights: weights.update({WEIGHT: weights[WEIGHT].T.contiguous()})),
        "is [136, 96] in the weights and [96, 136] by config.json",
    ),
    "a smaller matrix": (put(WEIGHT, torch.zeros(3, 5).to(E4M3)), "is [3, 5] in the weights and"),
    "another width": (with_config(hidden_size=192), "different models"),
    "another norm": (put("model.norm.weight", torch.ones(1, 96)), "the shape differs in 1 tensor"),
    # Files.
    "half a file": (cut("model.safetensors", 60_000), NOT_WHOLE),
    "half a shard": (then(sharded, cut("two.safetensors", 20_000)), "two.safetensors: not a whole"),
    "a shard that no index names": (indexed(_delete_from_index), "lacks"),
    # config.json.
    "quantization in words": (
        with_config(quantization_config="fp8"),
        'quantization_config is "fp8", not',
    ),
    "quantization of a number": (
        with_config(quantization_config=3),
        "quantization_config is 3, not an obj",
    ),
    "no method": (
        with_config(quantization_config={"bits": 8}),
        "quantization_config.quant_method is missing, not a string",
    ),
    "a method of a number": (
        with_config(quantization_config={"quant_method": 8}),
        "quantization_config.quant_method is 8, not a string",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_quantized(tmp_path / "m", "llama2", ROWS_FP8)
    return tmp_path / "m"


def load(folder: Path, dtype: Any = "fp32") -> Any:
    return load_model(resolve_model(str(folder)), "cpu", dtype)


def refusal(folder: Path, dtype: Any = "fp32") -> str:
    with pytest.raises(DecodescopeError) as caught:
        load(folder, dtype)
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert len(message) < 600 + 2 * len(str(folder))
    return message


@pytest.mark.parametrize(("break_it", "words"), BROKEN.values(), ids=list(BROKEN))
def test_it_is_refused_in_one_line(break_it: Change, words: str, folder: Path) -> None:
    break_it(folder)
    assert words in refusal(folder)


@pytest.mark.parametrize("layout", [LAYOUTS["AutoFP8"], Layout(None, INT8)], ids=["fp8", "int8"])
def test_weights_that_overflow_in_fp16_are_refused_there_only(
    layout: Layout, tmp_path: Path
) -> None:
    save_quantized(tmp_path, "llama2", layout)
    with_weights(lambda weights: weights[SCALE].fill_(700.0))(tmp_path)
    load(tmp_path, "bf16")
    message = refusal(tmp_path, "fp16")
    assert f"of {WEIGHT} times its scale is" in message
    assert "beyond float16 (65504); choose another --dtype" in message


def test_an_unscaled_matrix_of_int8_is_refused(tmp_path: Path) -> None:
    save_quantized(tmp_path, "llama2", Layout(None, INT8, scale=None))
    assert "weight is I8, but the checkpoint lacks its scale" in refusal(tmp_path)


@pytest.mark.parametrize("plain", [True, False])
def test_an_expert_of_integers_is_refused(tmp_path: Path, plain: bool) -> None:
    """Experts that are stored one by one have other names than the model's."""
    if plain:
        families.build("mixtral").save_pretrained(tmp_path)
    else:
        save_quantized(tmp_path, "mixtral", ROWS_FP8)
    expert = "model.layers.1.block_sparse_moe.experts.2.w2.weight"
    cast(expert, torch.int32)(tmp_path)
    assert f"{expert} is I32 (only F32" in refusal(tmp_path)


def test_tensors_that_nothing_uses_are_a_finding(folder: Path) -> None:
    put("vision.weight", torch.ones(3))(folder)
    put("model.layers.0.self_attn.rotary_emb.inv_freq", torch.ones(16))(folder)
    findings = {finding.code: finding.message for finding in load(folder).findings}
    assert findings["unexpected_weights"] == (
        "the checkpoint has 1 tensor that the model does not use: vision.weight"
    )


OTHER_METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "gptq": ({"quant_method": "gptq", "bits": 8}, "by gptq with quantization_config.bits 8 ("),
    "hqq": ({"quant_method": "hqq"}, "quantization_config.quant_method hqq ("),
    "bitsandbytes": ({"quant_method": "bitsandbytes"}, "quant_method bitsandbytes ("),
    "a long name": ({"quant_method": "x" * 9999}, "by xxxx"),
    "deepseek": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        "by fp8 with quantization_config.weight_block_size [128, 128] (",
    ),
    "modelopt in blocks": (
        {"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"},
        "algo fp8_pb_wo",
    ),
    "modelopt of nothing": ({"quant_method": "modelopt"}, "quantization_config.quant_algo missing"),
    "groups": (
        compressed_tensors({"strategy": "group", "group_size": 128}),
        "with quantization_config.config_groups.group_0.weights.strategy group (",
    ),
    "groups that are not named so": (
        compressed_tensors({"strategy": None, "group_size": 128}),
        "config_groups.group_0.weights.group_size 128 (",
    ),
    "blocks": (compressed_tensors({"strategy": "block"}), "group_0.weights.strategy block ("),
    "zero points": (
        compressed_tensors({"type": "int", "symmetric": False}),
        "config_groups.group_0.weights.symmetric false (",
    ),
    "3 bits": (
        compressed_tensors({"num_bits": 3, "type": "int"}, format="pack-quantized"),
        "config_groups.group_0.weights.num_bits 3 (only",
    ),
    "another type": (compressed_tensors({"type": "posit"}), "group_0.weights.type posit ("),
    "sparse": (
        compressed_tensors({}, sparsity_config={"format": "sparse-24-bitmask"}),
        "with quantization_config.sparsity_config {'format': 'sparse-24-bitmask'}",
    ),
    "rotated": (compressed_tensors({}, transform_config={"config_groups": {"u": {}}}), "transform"),
    "one of two groups": (
        compressed_tensors({}, {"strategy": "block"}),
        "config_groups.group_1.weights.strategy block (",
    ),
}


@pytest.mark.parametrize(("fields", "words"), OTHER_METHODS.values(), ids=list(OTHER_METHODS))
def test_other_methods_are_named_before_weights_are_loaded(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError) as caught:
        require_support("mine", FAMILIES["llama2"] | {"quantization_config": fields}, 1, "cpu")
    message = str(caught.value)
    assert message.startswith("mine: the fused kernels cannot run a checkpoint quantized ")
    assert words in message
    assert message.endswith("output channel or matrix, and 4-bit ones); choose another variant")
    assert len(message) < 300


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_the_fused_kernels_take_every_layout(layout: Layout) -> None:
    require_support("mine", FAMILIES["llama2"] | {"quantization_config": layout.config}, 1, "cpu")


def codes(dtype: torch.dtype) -> torch.Tensor:
    """All 256 codes, one a row."""
    return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)[:, None]


@pytest.mark.parametrize("dtype", [E4M3, E5M2, INT8])
def test_a_code_is_refused_exactly_if_it_is_no_number(dtype: torch.dtype) -> None:
    for row in codes(dtype):
        usable = bool(row.float().isfinite())
        assert (
            accepted(lambda row=row: require_usable("m", "w", row[None], None, torch.float32))
            == usable
        )


@given(
    st.sampled_from([E4M3, E5M2, INT8]),
    st.floats(2.0**-40, 2.0**127, width=32),
    st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
)
def test_a_scale_is_refused_exactly_if_a_weight_overflows(
    dtype: torch.dtype, scale: float, model_dtype: torch.dtype
) -> None:
    data = codes(dtype)
    data = data[data.float().isfinite().flatten()].T.contiguous()
    exact = data.double().abs().max() * torch.tensor(scale).double()
    fits = bool(exact <= torch.finfo(model_dtype).max)
    scales = torch.tensor([scale])
    assert accepted(lambda: require_usable("m", "w", data, scales, model_dtype)) == fits


@given(st.floats(width=32))
def test_a_scale_is_used_exactly_if_it_is_positive_and_finite(value: float) -> None:
    scale = torch.tensor([[value]])
    usable = 0 < value < float("inf")
    assert accepted(lambda: row_scales("m", "s", scale, 3)) == usable
    if usable:
        assert torch.equal(row_scales("m", "s", scale, 3), torch.full((3,), value))


def accepted(check: Callable[[], object]) -> bool:
    try:
        check()
    except ModelError:
        return False
    return True
