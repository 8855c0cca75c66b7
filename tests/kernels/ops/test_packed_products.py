"""Products with weights of 4 bits against float64: one token in pairs, several on tensor cores."""

import pytest
import torch

from decodescope.kernels.host.packed import packed
from decodescope.kernels.host.packing import PACKED_FORMATS, Packing, integer_packing
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix, narrow_matrix
from decodescope.kernels.ops.dequantize_rows import DequantizeRows
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.variants.model.quantized_weights import scaled
from tests.helpers.kernel_fixtures import Inputs, assert_near

FORMATS = tuple(PACKED_FORMATS)
SMALLER_GROUPS = ("int4_g64", "int4_g32")
DTYPES = [torch.bfloat16, torch.float16, torch.float32]


def tile_of(batch: int, columns: int = 64, splits: int = 1, ahead: int = 1) -> Tile:
    return Tile(32, columns, 4, num_stages=ahead, splits=splits)


# Columns, block, blocks ahead.
CUTS = [(33, 64, 1), (96, 32, 2), (300, 128, 3)]
CASES = [
    *((format, CUTS[2], torch.bfloat16) for format in FORMATS if format not in SMALLER_GROUPS),
    ("int4_g32", CUTS[0], torch.float16),
    ("int4_g64", CUTS[2], torch.float16),
    ("nvfp4", CUTS[1], torch.float16),
    *((format, CUTS[0], torch.float32) for format in ("int4", "mxfp4")),
]


def check_product(make, batch: int, format: str, rows: int, columns: int, tile: Tile) -> None:
    weight, x = make.narrow(rows, columns, format, biased=True), make.random(batch, columns)
    out = make.poisoned(batch, rows)
    Linear(x, weight, out, tile).launch()
    assert_near(out, linear_reference(x, weight))


@pytest.mark.parametrize(("format", "cut", "dtype"), CASES)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_product(batch: int, format: str, cut: tuple[int, ...], dtype, inputs) -> None:
    columns, block, ahead = cut
    check_product(inputs(dtype), batch, format, 37, columns, tile_of(batch, block, ahead=ahead))


# Two groups of a word in a block, an odd number of groups, parts of 64 and of 32 columns in larger
# groups, groups that are longer than a block, and one of a row, which may be shorter.
@pytest.mark.parametrize(
    ("group", "columns", "block"),
    [
        (128, 600, 512),
        (64, 333, 256),
        (192, 900, 512),
        (96, 300, 256),
        (256, 500, 64),
        (0, 300, 64),
        (0, 32, 64),
    ],
)
@pytest.mark.parametrize("zeros", [False, True])
def test_each_group_has_its_scale(
    zeros: bool, group: int, columns: int, block: int, inputs
) -> None:
    make = inputs(torch.float16)
    packing = integer_packing(columns, group, zeros)
    assert packing is not None
    generator = torch.Generator().manual_seed(columns)
    codes = torch.randint(16, (37, packing.padded), generator=generator, dtype=torch.uint8)
    scales = torch.rand(37, packing.groups, 2, generator=generator).half().float() * 2.0**-4
    scales[..., 1] = torch.randint(16, scales.shape[:2], generator=generator).float()
    words = packed(codes, scales if zeros else scales[..., :1], packing).to(make.device)
    weight = WeightMatrix(words, None, packing=packing).for_batches()
    x, out = make.random(5, columns), make.poisoned(5, 37)
    Linear(x, weight, out, Tile(64, block, 4, 2)).launch()
    assert_near(out, linear_reference(x, weight))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("format", "dtype"),
    [
        *((format, torch.bfloat16) for format in FORMATS),
        *((format, dtype) for format in ("int4_g32", "nvfp4") for dtype in DTYPES[1:]),
    ],
)
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "tile"),
    [
        (1, 37, 33, Tile(4, 64)),
        (1, 1000, 4096, Tile(16, 4096, 4)),
        (1, 1000, 4100, Tile(16, 2048, 2, 2)),
        (1, 77, 14336, Tile(8, 1024, 1, 3)),
        (1, 200, 2048, Tile(32, 1024, 1, 2)),
        (2, 1000, 4100, Tile(64, 128, 4, 4)),
        (16, 520, 4096, Tile(128, 64, 4, 4)),
        (33, 100, 1000, Tile(32, 128, 4, 3)),
        (64, 257, 96, Tile(16, 32, 4, 2)),
    ],
)
def test_awkward_sizes(batch: int, rows: int, columns: int, tile: Tile, format, dtype) -> None:
    check_product(Inputs(dtype, "cuda"), batch, format, rows, columns, tile)


@pytest.mark.parametrize("format", ["int4_asym", "mxfp4", "nvfp4"])
def test_a_norm(format: str, inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, norm, x = make.narrow(34, 100, format), make.norm(100), make.random(1, 100)
    out = make.poisoned(1, 34)
    Linear(x, weight, out, tile_of(1, 32, ahead=2), norm).launch()
    assert_near(out, linear_reference(x, weight, norm))
    up = make.poisoned(1, 17)
    operation = NormGateUp(x, norm, weight, up, Tile(32, 64))
    operation.launch()
    assert_near(up, operation.reference(0)[0])


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("format", ["int4", "mxfp4", "nvfp4"])
def test_splits_share_a_row(format: str, batch: int, inputs) -> None:
    make = inputs(torch.float16)
    weight, x = make.narrow(19, 300, format, biased=True), make.random(batch, 300)
    residual = make.random(batch, 19, seed=9)
    tile = tile_of(batch, 64, splits=3)
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    operation = LinearResidual(x, weight, residual, tile, workspace)
    (expected,) = operation.reference(0)
    operation.launch()
    assert_near(residual, expected)
    assert not workspace.counters.any()


def test_the_same_inputs_give_the_same_bits(inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, x = make.narrow(40, 2080, "int4"), make.random(1, 2080)
    tile = Tile(32, 1024, 4, 1, 2)
    results = []
    for _ in range(2):
        residual = torch.zeros(1, 40, dtype=torch.bfloat16, device=x.device)
        workspace = make.workspace(*split_workspace(weight, tile, 1))
        LinearResidual(x, weight, residual, tile, workspace).launch()
        results.append(residual)
    assert torch.equal(*results)


def test_a_head(inputs) -> None:
    make = inputs(torch.float16)
    head, x, norm = make.narrow(101, 96, "int4_g32"), make.random(1, 96), make.norm(96)
    tokens = torch.zeros(1, 4, dtype=torch.int64, device=x.device)
    logits = make.poisoned(1, 101, dtype=torch.float32)
    position, workspace = make.position(1), make.workspace(0, 1)
    tile = Tile(64, 128)
    operation = NormHead(x, norm, head, tokens, position, tile, workspace, logits)
    operation.launch()
    assert_near(logits.half(), operation.reference(1)[0])
    assert tokens[0, 2] == logits.argmax()


@pytest.mark.parametrize("size", [1e-6, 300.0, 60000.0])
@pytest.mark.parametrize("format", ["int4", "nvfp4"])
def test_sums_neither_overflow_nor_vanish(size: float, format: str, inputs) -> None:
    """All products of a chunk have one sign, and all but one x are far below the largest."""
    make = inputs(torch.bfloat16)
    matrix = torch.full((16, 256), 0.02, device=make.device) + make.random(16, 256).float() * 1e-3
    weight = narrow_matrix(matrix, format)
    x = torch.full((1, 256), size, dtype=torch.bfloat16, device=make.device)
    x[0, 1::2] *= 2.0**-6
    out = make.poisoned(1, 16)
    Linear(x, weight, out, tile_of(1, 256)).launch()
    assert_near(out, linear_reference(x, weight))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_x_that_is_no_number_shows(bad: float, inputs) -> None:
    make = inputs(torch.bfloat16)
    weight, x = make.narrow(8, 128, "int4"), make.random(1, 128)
    x[0, 77] = bad
    out = torch.zeros(1, 8, dtype=torch.bfloat16, device=x.device)
    Linear(x, weight, out, tile_of(1)).launch()
    assert not out.isfinite().any()


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(
    ("format", "scale"),
    [
        ("int4", 0.0),
        ("int4", 6e-8),
        ("int4", torch.inf),
        ("int4", torch.nan),
        ("mxfp4", 2.0**-40),
        ("mxfp4", torch.nan),
        ("nvfp4", 0.0),
        ("nvfp4", 2.0**-9),
        ("nvfp4", torch.nan),
    ],
)
def test_scales_at_the_ends(format: str, scale: float, batch: int, inputs) -> None:
    make = inputs(torch.float16)
    packing = Packing(PACKED_FORMATS[format], 256)
    codes = (torch.arange(8 * 256).view(8, 256) % 13).to(torch.uint8)
    scales = torch.full((8, packing.groups, 1), 0.0625)
    scales[3] = scale
    row_scale = torch.ones(8, device=make.device) if packing.format.row_scaled else None
    words = packed(codes, scales, packing).to(make.device)
    weight = WeightMatrix(words, row_scale, packing=packing).for_batches()
    x, out = make.random(batch, 256), make.poisoned(batch, 8)
    Linear(x, weight, out, tile_of(batch)).launch()
    expected = linear_reference(x, weight)
    others = [row for row in range(8) if row != 3]
    assert_near(out[:, others], expected[:, others])
    if scale in (0.0, 6e-8, 2.0**-40, 2.0**-9):
        # Eight sums of float16, each rounded by 2^-12 of the products' sizes at most, twice as much
        # with the other rounding of a batch, and half of the least float16 in the output.
        sizes = x.double().abs() @ weight.dense().abs().T
        most = 2.0**-8 * sizes[:, 3] + 2.0**-25
        assert ((out[:, 3].double() - expected[:, 3]).abs() <= most).all()
    else:
        assert not out[:, 3].isfinite().any()


@pytest.mark.parametrize(
    ("format", "columns", "dtype"),
    [
        *((format, 300, torch.float16) for format in FORMATS),
        *((format, 33, torch.bfloat16) for format in ("int4_asym", "mxfp4", "nvfp4")),
    ],
)
def test_dequantised_rows_are_those_of_pytorch(
    format: str, columns: int, dtype: torch.dtype, inputs
) -> None:
    make = inputs(dtype)
    weight = make.narrow(5, columns, format)
    out = make.poisoned(5, columns)
    DequantizeRows(weight, out).launch()
    expected = scaled(weight.data, weight.scale, dtype, weight.packing)
    if make.device == "cpu" and dtype == torch.bfloat16:
        # The interpreter truncates.
        assert torch.allclose(out, expected, rtol=2.0**-7)
    else:
        assert torch.equal(out, expected)
