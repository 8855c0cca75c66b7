"""Words of the kernels hold every code and scale of a matrix, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.modelling.config import model_shape
from decodescope.analyzer.modelling.weight_formats import stored_format
from decodescope.kernels.host.packed import codes_and_scales, unpacked
from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
from decodescope.variants.model.grouped.loading import grouped_matrices
from decodescope.variants.model.grouped.matrix import GroupedMatrix
from decodescope.variants.model.grouped.schemes import packed_schemes
from tests.helpers.families import FAMILIES
from tests.variants.model.grouped_checkpoints import LAYOUTS, Drawn, Packed, Tensors, drawn

_TYPES = {
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
    torch.float8_e4m3fn: "F8_E4M3",
}
STAYING = [name for name, layout in LAYOUTS.items() if layout.stays]


class Skeleton(nn.Module):
    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.w = nn.Linear(columns, rows, device="meta")


def matrix_of(layout: Packed, made: Drawn) -> tuple[GroupedMatrix, Tensors, torch.Tensor]:
    """The matrix, its tensors, and its weights by the layout's own packer."""
    tensors, weight = layout.pack(made)
    named = {f"w.{end}": value for end, value in tensors.items()}
    stored = {
        name: StoredTensor(Path("f"), name, _TYPES[value.dtype], tuple(value.shape))
        for name, value in named.items()
    }
    fields: Mapping[str, Any] = layout.config
    checkpoint = PackedCheckpoint("m", stored, packed_schemes(fields), named.__getitem__)
    (found,) = grouped_matrices(checkpoint, Skeleton(*made.codes.shape)).values()
    return found, named, weight


@given(st.data(), st.sampled_from(STAYING))
def test_repacking_is_a_bijection(data: st.DataObject, name: str) -> None:
    layout = LAYOUTS[name]
    rows = 8 * data.draw(st.integers(1, 4))
    columns = (layout.group or 8) * data.draw(st.integers(1, 5))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    made = drawn(rows, columns, layout, random)
    matrix, tensors, _ = matrix_of(layout, made)
    packed = matrix.packed(tensors, torch.float32)
    assert packed is not None
    assert matrix.packing is not None
    words, row_scale = packed
    codes, scales = codes_and_scales(words, matrix.packing)
    assert np.array_equal(codes[:, :columns].numpy(), made.codes)
    groups = made.scales.shape[1]
    assert torch.equal(scales[:, :groups, 0], made.scales.float())
    if matrix.packing.format.scales == "fp16_zero":
        assert np.array_equal(scales[:, :groups, 1].numpy(), made.zeros)
    assert (row_scale is not None) == matrix.packing.format.row_scaled
    # Every bit of the words is a code, a scale, or padding that is zero.
    assert not codes[:, columns:].any()
    assert not scales[:, groups:].any()


@pytest.mark.parametrize("name", STAYING)
def test_every_code_meets_every_zero_point_exactly(name: str) -> None:
    layout = LAYOUTS[name]
    columns = layout.group or 32
    made = drawn(16, columns, layout, np.random.default_rng(0))
    made.codes[:] = np.arange(columns, dtype=np.uint8) % 16
    if not layout.middle:
        made.zeros[:] = np.arange(16, dtype=np.uint8)[:, None]
    matrix, tensors, weight = matrix_of(layout, made)
    packed = matrix.packed(tensors, torch.float32)
    assert packed is not None
    assert matrix.packing is not None
    codes, _ = codes_and_scales(packed[0], matrix.packing)
    assert np.array_equal(codes[:, :columns].numpy(), made.codes)
    assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)


# Of bfloat16: those that float16 has, its subnormal numbers, and beyond.
@given(st.lists(st.integers(-60, 12), min_size=4, max_size=4), st.integers(128, 255))
def test_scales_that_float16_lacks_become_those_of_rows(exponents: list[int], digits: int) -> None:
    layout = LAYOUTS["compressed-tensors in bf16, zero points"]
    made = drawn(8, 128, layout, np.random.default_rng(1))
    made.scales[3] = torch.tensor([digits * 2.0**exponent for exponent in exponents]).bfloat16()
    matrix, tensors, weight = matrix_of(layout, made)
    packed = matrix.packed(tensors, torch.float32)
    if packed is None:
        # The digits of the smallest end below those that a float16 beside the largest has.
        assert max(exponents) - min(exponents) > 20
        assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)
        return
    assert matrix.packing is not None
    words, row_scale = packed
    _, scales = codes_and_scales(words, matrix.packing)
    rows = torch.ones(8) if row_scale is None else row_scale
    assert torch.equal(scales[..., 0] * rows[:, None], made.scales.float())
    assert scales[..., 0].abs().max() * 16 < torch.finfo(torch.float16).max


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", STAYING)
@pytest.mark.parametrize("value", [0.0, torch.inf, torch.nan])
def test_a_scale_of_zero_is_kept_and_one_that_is_no_number_refused(name: str, value: float) -> None:
    layout = LAYOUTS[name]
    made = drawn(8, 96, layout, np.random.default_rng(0))
    made.scales[5, -1] = value
    matrix, tensors, weight = matrix_of(layout, made)
    # E8M0 has no zero, and neither type of 8 bits has an infinity.
    if made.scales[5, -1].float().isfinite():
        packed = matrix.packed(tensors, torch.float32)
        assert packed is not None
        assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)
        return
    with pytest.raises(
        ModelError, match=r"m: row 5 of w\.(weight_)?scales? has scales that are NaN"
    ):
        matrix.packed(tensors, torch.float32)


# Beside the codes: the order of columns, and GPTQ's zero points that all are 8.
UNCOUNTED = ("g_idx", "weight_g_idx", "weight_shape", "input_scale", "input_global_scale")
UNCOUNTED_BYTES = {
    "GPTQ, symmetric": 64 * 6 // 2,
    "NVFP4 of compressed-tensors": 4,
    "NVFP4 of ModelOpt": 4,
}


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "fp32" not in name])
def test_config_json_tells_the_bytes_of_a_matrix(name: str) -> None:
    layout = LAYOUTS[name]
    tensors, _ = layout.pack(drawn(64, 192, layout, np.random.default_rng(0)))
    stored = sum(tensor.nbytes for key, tensor in tensors.items() if key not in UNCOUNTED)
    shape = model_shape(FAMILIES["llama2"], "m", "m")
    found = stored_format(shape, layout.config).matrix_bytes(64, 192)
    assert found == stored - UNCOUNTED_BYTES.get(name, 0)


def test_weights_beyond_the_models_dtype_are_refused_there_only() -> None:
    """Elsewhere, no code times its scale overflows the float16 that batches multiply."""
    layout = LAYOUTS["AWQ"]
    made = drawn(8, 96, layout, np.random.default_rng(0))
    made.scales[2] = torch.tensor([-2048.0, 30_000.0, 1.5])
    matrix, tensors, weight = matrix_of(layout, made)
    packed = matrix.packed(tensors, torch.bfloat16)
    assert packed is not None
    words, row_scale = packed
    assert row_scale is not None
    assert matrix.packing is not None
    rows = unpacked(words, matrix.packing, torch.float32)
    assert rows.half().isfinite().all()
    assert torch.equal(rows * row_scale[:, None], weight)
    with pytest.raises(ModelError, match=r"row 2 of w holds .* beyond float16 "):
        matrix.packed(tensors, torch.float16)


def test_every_e8m0_scale_is_exact_as_far_as_batches_multiply_it() -> None:
    layout = LAYOUTS["MXFP4 of compressed-tensors"]
    made = drawn(128, 32, layout, np.random.default_rng(0))
    made.scales.view(torch.uint8)[:, 0] = torch.arange(128, dtype=torch.uint8)
    matrix, tensors, weight = matrix_of(layout, made)
    packed = matrix.packed(tensors, torch.float32)
    assert packed is not None
    assert matrix.packing is not None
    _, scales = codes_and_scales(packed[0], matrix.packing)
    exact = torch.tensor([2.0 ** (byte - 127) for byte in range(128)], dtype=torch.float64)
    assert torch.equal(scales[:, 0, 0].double(), exact)
    assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)


def test_columns_that_are_no_whole_groups_of_e2m1_are_refused() -> None:
    made = drawn(8, 24, LAYOUTS["MXFP4 of compressed-tensors"], np.random.default_rng(0))
    with pytest.raises(ModelError, match=r"w\.weight_packed is of 24 columns in the weights"):
        matrix_of(LAYOUTS["MXFP4 of compressed-tensors"], made)


def test_mxfp4_beyond_what_batches_multiply_is_dequantised() -> None:
    layout = LAYOUTS["MXFP4 of compressed-tensors"]
    made = drawn(8, 96, layout, np.random.default_rng(0))
    made.scales[2, 1] = 32.0
    matrix, tensors, weight = matrix_of(layout, made)
    assert matrix.packed(tensors, torch.float32) is None
    assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)


def test_a_zero_of_gptq_is_one_more_than_its_word_says() -> None:
    """With a carry, as it was subtracted: a zero of 0 is stored as 15, one less above it."""
    layout = LAYOUTS["GPTQ"]
    made = drawn(8, 32, layout, np.random.default_rng(0))
    made.zeros[:, 0] = (0, 0, 8, 15, 1, 0, 7, 0)
    matrix, tensors, weight = matrix_of(layout, made)
    assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)
    v2 = LAYOUTS["GPTQ v2, channels"]
    matrix, tensors, weight = matrix_of(replace(v2, group=0), made)
    assert torch.equal(matrix.dequantised(tensors, torch.float32), weight)
