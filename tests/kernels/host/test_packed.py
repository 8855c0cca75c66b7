"""Formats of 4 bits on the host: packing is a bijection, and rounding is to the nearest code."""

import itertools
from dataclasses import replace

import pytest
import torch

from decodescope.kernels.host.packed import codes_and_scales, packed, quantized_groups, unpacked
from decodescope.kernels.host.packing import PACKED_FORMATS, Packing
from decodescope.kernels.host.weights import WeightMatrix, narrow_matrix, quantized_rows

FORMATS = tuple(PACKED_FORMATS)
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Columns that are no multiple of a group, of a word, of two.
COLUMNS = (1, 31, 32, 33, 100, 256, 300)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def value_of(code: int, zero: float, e2m1: bool) -> float:
    """A code's value by the definitions of the formats."""
    if not e2m1:
        return code - zero
    return (-1.0 if code >= 8 else 1.0) * E2M1[code % 8]


def any_scales(packing: Packing, rows: int) -> torch.Tensor:
    """Scales [rows, groups, 1 or 2] that the format has, every one of 8 bits among them."""
    count = rows * packing.groups
    numbers = torch.arange(count)
    match packing.format.scales:
        case "e8m0":
            scales = torch.exp2((numbers % 255).double() - 127).float()
        case "e4m3":
            scales = (numbers % 127).to(torch.uint8).view(torch.float8_e4m3fn).float()
        case "fp16":
            scales = (random(count) * torch.exp2(numbers % 20 - 12)).half().float()
        case "fp16_zero":
            pairs = (random(count).half().float(), (numbers % 16).float())
            return torch.stack(pairs, dim=-1).view(rows, packing.groups, 2)
    return scales.view(rows, packing.groups, 1)


@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", FORMATS)
def test_packing_is_a_bijection(name: str, columns: int) -> None:
    packing = Packing(PACKED_FORMATS[name], columns)
    generator = torch.Generator().manual_seed(columns)
    codes = torch.randint(0, 16, (9, packing.padded), generator=generator, dtype=torch.uint8)
    scales = any_scales(packing, 9)
    words = packed(codes, scales, packing)
    assert words.shape == (9, packing.width)
    found, found_scales = codes_and_scales(words, packing)
    assert torch.equal(found, codes)
    assert torch.equal(found_scales, scales)
    assert torch.equal(packed(found, found_scales, packing), words)


@pytest.mark.parametrize("name", FORMATS)
def test_every_code_in_every_place(name: str) -> None:
    packing = Packing(PACKED_FORMATS[name], 32)
    rows = torch.zeros(16 * 32, 32, dtype=torch.uint8)
    for row, (code, column) in enumerate(itertools.product(range(16), range(32))):
        rows[row, column] = code
    scales = torch.ones(len(rows), packing.groups, 1)
    if packing.format.scales == "fp16_zero":
        scales = torch.cat((scales, torch.full_like(scales, 5.0)), dim=2)
    weights = unpacked(packed(rows, scales, packing), packing, torch.float64)
    zero = 5.0 if packing.format.scales == "fp16_zero" else 8.0
    values = torch.tensor(
        [value_of(code, zero, packing.format.e2m1) for code in range(16)], dtype=torch.float64
    )
    assert torch.equal(weights, values[rows.long()])


@pytest.mark.parametrize(("columns", "scales"), [(1, 1), (128, 1), (129, 2), (4096, 32)])
def test_bytes_of_a_row_by_hand(columns: int, scales: int) -> None:
    packing = Packing(PACKED_FORMATS["int4"], columns)
    assert packing.groups == scales
    padded = -(-columns // 32) * 32
    assert 4 * packing.width == padded // 2 + -(-2 * scales // 16) * 16


@pytest.mark.parametrize("columns", [33, 128, 300])
@pytest.mark.parametrize("name", FORMATS)
def test_no_weight_is_farther_from_its_own_than_from_another_code(name: str, columns: int) -> None:
    packing = Packing(PACKED_FORMATS[name], columns)
    matrix = random(8, columns)
    words, row_scale = quantized_groups(matrix, packing, matrix.abs().amax(dim=1))
    assert (row_scale is not None) == packing.format.row_scaled
    codes, scales = codes_and_scales(words, packing, torch.float64)
    scales = scales.repeat_interleave(packing.group, dim=1)[:, :columns]
    steps = scales[..., 0] if row_scale is None else scales[..., 0] * row_scale.double()[:, None]
    zeros = scales[..., 1] if packing.format.scales == "fp16_zero" else torch.full_like(steps, 8.0)
    weights = WeightMatrix(words, row_scale, packing=packing).dense()
    errors = (weights - matrix.double()).abs()
    for code in range(16):
        value = torch.tensor(value_of(code, 0.0, packing.format.e2m1), dtype=torch.float64)
        other = steps * (value if packing.format.e2m1 else value - zeros)
        assert (errors <= (other - matrix.double()).abs() * (1 + 1e-6)).all()
    assert codes.shape == (8, packing.padded)


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("int4", 0.13),
        ("int4_g64", 0.115),
        ("int4_g32", 0.1),
        ("int4_channel", 0.17),
        ("int4_asym", 0.12),
        ("mxfp4", 0.14),
        ("nvfp4", 0.1),
    ],
)
def test_the_error_of_normal_weights(name: str, most: float) -> None:
    matrix = random(64, 512, seed=1)
    weights = narrow_matrix(matrix, name).dense()
    assert (weights - matrix.double()).norm() / matrix.double().norm() < most


@pytest.mark.parametrize("name", FORMATS)
def test_a_searched_scale_is_no_worse_than_the_largest_weights(name: str) -> None:
    """One outlier a group: a scale that reaches it rounds the others away."""
    matrix = random(16, 256, seed=2)
    matrix[:, ::32] *= 3
    packing = Packing(PACKED_FORMATS[name], 256)
    groups = matrix.view(16, packing.groups, -1)
    largest = groups.abs().amax(dim=2, keepdim=True)
    errors = (narrow_matrix(matrix, name).dense() - matrix).square().sum()
    if not packing.format.e2m1:
        scale = largest / 7
        plain = (groups / scale).round().clamp(-8, 7) * scale
        assert errors <= (plain - groups).square().sum()


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_and_the_smallest_weights(name: str) -> None:
    matrix = torch.zeros(3, 200)
    matrix[1, 40] = 1e-40
    matrix[2, 150:] = random(50) * 1e-3
    weights = narrow_matrix(matrix, name).dense()
    assert weights.isfinite().all()
    assert (weights[0] == 0).all()
    assert (weights[1].abs() <= 1e-7).all()
    if packing_group(name) <= 128:
        # Groups of zeros beside others.
        assert (weights[2, :128] == 0).all()
    assert weights[2, 150:].abs().max() > 5e-4


def packing_group(name: str) -> int:
    return Packing(PACKED_FORMATS[name], 200).group


@pytest.mark.parametrize(
    ("name", "most", "more"), [("int4", 6e4, 6.1e4), ("int4_asym", 6e4, 1e7), ("mxfp4", 96, 97)]
)
def test_weights_beyond_float16_are_refused(name: str, most: float, more: float) -> None:
    """Those of several tokens become float16."""
    matrix = random(4, 128, seed=3) * most / 5
    matrix[2, 5] = most
    assert narrow_matrix(matrix, name).dense(torch.float16).isfinite().all()
    matrix[2, 5] = more
    with pytest.raises(ValueError, match=f"row 2 of the weights is beyond the scales of {name}"):
        quantized_rows(matrix, name)
    matrix[2, 5] = torch.inf
    with pytest.raises(ValueError, match="row 2 of the weights holds NaN or an infinity"):
        quantized_rows(matrix, "mxfp4")


def test_a_matrix_says_what_its_words_must_be() -> None:
    packing = Packing(PACKED_FORMATS["int4"], 100)
    with pytest.raises(ValueError, match=r"100 columns of int4 must be int32 \[rows, 20\]"):
        WeightMatrix(torch.zeros(4, 16, dtype=torch.int32), packing=packing)
    matrix = narrow_matrix(random(4, 100), "int4")
    assert (matrix.rows, matrix.columns, matrix.format) == (4, 100, "int4")
    assert matrix.bytes_read == 4 * 80


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("columns", [100, 128, 700])
def test_products_of_several_tokens_read_scales_of_rows_side_by_side(
    name: str, columns: int
) -> None:
    matrix = narrow_matrix(random(5, columns), name)
    alone = WeightMatrix(matrix.data, matrix.scale, packing=matrix.packing)
    assert alone.operands(1) == (matrix.data, matrix.scale, None)
    # A group of 32 columns is too short.
    if name in ("mxfp4", "nvfp4", "int4_g32"):
        assert matrix.group_scales is None
        assert alone.operands(2) == (matrix.data, matrix.scale, None, None)
        return
    with pytest.raises(ValueError, match=f"{name} weights and 2 tokens: need `for_batches`"):
        alone.operands(2)
    beside = matrix.operands(2)[3]
    assert beside is not None
    assert matrix.packing is not None
    words = matrix.packing.words
    for row, word in itertools.product(range(5), range(len(beside))):
        assert beside[word, row] == matrix.data[row, words + word]
    assert len(beside) == matrix.data.shape[1] - words
    with pytest.raises(ValueError, match=r"group_scales \[\d+, 5\] of .*: must be those of"):
        replace(matrix, data=matrix.data[:3])
