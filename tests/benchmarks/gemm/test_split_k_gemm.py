from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks.gemm.split_k_gemm import SplitKGemm, split_k_gemm_reference
from decodescope.kernels.host.tile import Tile, padded_tokens
from decodescope.kernels.host.weights import WeightMatrix, quantized_rows
from decodescope.kernels.host.workspace import Workspace, new_workspace

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
FORMATS = ["fp8_e4m3", "fp8_e5m2", "int8"]
# x beside each format: as the tensor cores take them.
PAIRS = [(format, x) for format in FORMATS for x in (torch.bfloat16, torch.float16)]
PAIRS += [("fp8_e4m3", E4M3), ("fp8_e5m2", E4M3)]

# 16-byte rows come through descriptors, the others by pointers; the last of the splits of some
# have fewer columns, or none.
SHAPES = [
    (1, 40, 96, Tile(16, 32)),
    (3, 33, 77, Tile(32, 32, splits=2)),
    (16, 50, 144, Tile(32, 64, num_stages=2, splits=3)),
    (17, 16, 40, Tile(16, 32, splits=5)),
    (64, 35, 131, Tile(64, 64)),
]


def weight_of(make: Any, rows: int, columns: int, format: Any, biased: bool = False) -> Any:
    """Rows of about unit length; one of zeros, and scales from tiny to huge."""
    dense = make.random(rows, columns, dtype=torch.float32) / columns**0.5
    dense[rows // 2] = 0
    dense[0] *= 1e4
    dense[-1] *= 1e-4
    bias = make.random(rows, seed=2, dtype=torch.float32) if biased else None
    return WeightMatrix(*quantized_rows(dense, format), bias)


def x_of(make: Any, tokens: int, columns: int, dtype: torch.dtype) -> tuple[Any, Any]:
    """Activations of a dtype, and their scales if it is narrow; an outlier token among them."""
    x = make.random(tokens, columns, dtype=torch.float32)
    x[-1] *= 300
    return quantized_rows(x, "fp8_e4m3") if dtype == E4M3 else (x.to(dtype), None)


def workspace_of(make: Any, tokens: int, rows: int, tile: Tile) -> Workspace:
    blocks = -(-rows // tile.rows)
    return make.workspace(tile.splits * blocks * tile.rows * padded_tokens(tokens), blocks)


@pytest.mark.parametrize(("format", "x_dtype"), PAIRS)
@pytest.mark.parametrize(("tokens", "rows", "columns", "tile"), SHAPES)
def test_multiplies(
    tokens: int,
    rows: int,
    columns: int,
    tile: Tile,
    format: str,
    x_dtype: torch.dtype,
    inputs: Callable[..., Any],
    assert_reset: Callable[..., None],
) -> None:
    make = inputs(torch.float32)
    weight = weight_of(make, rows, columns, format, biased=tokens % 2 == 1)
    x, x_scale = x_of(make, tokens, columns, x_dtype)
    workspace = workspace_of(make, tokens, rows, tile)
    results = []
    # The second launch finds what the first one left in the workspace.
    for _ in range(2):
        out = make.poisoned(tokens, rows)
        operation = SplitKGemm(x, x_scale, weight, out, tile, workspace)
        operation.launch()
        assert_exact(operation)
        assert_reset(workspace)
        results.append(out)
    assert torch.equal(*results)


def assert_exact(operation: SplitKGemm) -> None:
    """Each sum is as near to float64 as sums of its products are, whatever cancels in it."""
    x, weight, out = operation.x.double(), operation.weight, operation.out
    (expected,) = operation.reference(0)
    magnitude = split_k_gemm_reference(
        x.abs(),
        operation.x_scale,
        replace(weight, data=weight.data.double().abs().float(), bias=None),
    )
    if weight.bias is not None:
        magnitude += weight.bias.double().abs()
    # Hopper adds FP8 products with about 14 bits.
    limit = 2.0**-12 if operation.x.dtype == E4M3 and out.is_cuda else 2.0**-21
    assert out.isfinite().all()
    assert ((out.double() - expected).abs() <= limit * magnitude).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_output_may_have_16_bits(
    dtype: torch.dtype, inputs: Callable[..., Any], assert_close: Callable[..., None]
) -> None:
    make = inputs(dtype)
    x, weight = make.random(5, 64), make.weight(24, 64)
    weight = WeightMatrix(*quantized_rows(weight.data.float(), "int8"), make.random(24, seed=2))
    guarded, tile = make.poisoned(7, 24), Tile(16, 16, splits=2)
    SplitKGemm(x, None, weight, guarded[1:6], tile, workspace_of(make, 5, 24, tile)).launch()
    assert_close(guarded[1:6], split_k_gemm_reference(x, None, weight))
    assert guarded[[0, 6]].isnan().all()


def test_values_beyond_float16_become_its_largest(inputs: Callable[..., Any]) -> None:
    make = inputs(torch.bfloat16)
    values = torch.tensor([[1e9, 0.0], [-1e9, 2.0], [float("nan"), 1.0]], device=make.device)
    x = torch.zeros(3, 16, dtype=torch.bfloat16, device=make.device)
    x[:, :2] = values
    data = torch.ones(16, 16, dtype=torch.int8, device=make.device)
    out = make.poisoned(3, 16, dtype=torch.float32)
    tile = Tile(16, 16)
    SplitKGemm(x, None, WeightMatrix(data), out, tile, make.workspace(0, 0)).launch()
    assert out[:2, 0].tolist() == [65504.0, -65502.0]
    assert out[2].isnan().all()


def test_reads_no_further_than_its_rows_and_tokens(inputs: Callable[..., Any]) -> None:
    make = inputs(torch.float16)
    x = make.poisoned(6, 40)
    x[1:4] = make.random(3, 40)
    dense, _ = quantized_rows(make.random(37, 40, dtype=torch.float32), "fp8_e5m2", scaled=False)
    dense[[0, -1]] = float("nan")
    weight = WeightMatrix(dense[1:-1])
    out, tile = make.poisoned(3, 35), Tile(16, 32, splits=2)
    SplitKGemm(x[1:4], None, weight, out, tile, workspace_of(make, 3, 35, tile)).launch()
    assert out.isfinite().all()


def test_bytes_are_those_of_its_tensors() -> None:
    weight = WeightMatrix(torch.zeros(6, 8, dtype=torch.int8), torch.ones(6), torch.zeros(6))
    x, out = torch.zeros(3, 8, dtype=torch.bfloat16), torch.zeros(3, 6)
    operation = SplitKGemm(x, None, weight, out, Tile(16, 16), WORKSPACE)
    assert operation.bytes_moved(0) == 6 * 8 + 6 * 4 + 6 * 4 + 3 * 8 * 2 + 3 * 6 * 4
    narrow = replace(operation, x=x.to(E4M3), x_scale=torch.ones(3))
    assert narrow.bytes_moved(0) == operation.bytes_moved(0) - 3 * 8 + 3 * 4


FP8 = WeightMatrix(torch.zeros(6, 8).to(E4M3), torch.ones(6))
INT8 = WeightMatrix(torch.zeros(6, 8, dtype=torch.int8), torch.ones(6))
X, NARROW_X = torch.zeros(3, 8, dtype=torch.bfloat16), torch.zeros(3, 8).to(E4M3)
OUT, SCALES = torch.zeros(3, 6), torch.ones(3)
TILE, SPLIT_TILE = Tile(16, 32), Tile(16, 32, splits=2)
WORKSPACE = new_workspace(512, 1, "cpu")
GOOD = SplitKGemm(NARROW_X, SCALES, FP8, OUT, SPLIT_TILE, WORKSPACE)
GOOD_WIDE = SplitKGemm(X, None, INT8, OUT, SPLIT_TILE, WORKSPACE)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"x": torch.zeros(8).to(E4M3)}, r"x \[8\]: must be \[1 to 64, 8\]"),
        ({"x": torch.zeros(65, 8).to(E4M3)}, r"x \[65, 8\]: .*1 to 64"),
        ({"x": torch.zeros(0, 8).to(E4M3)}, "1 to 64"),
        ({"x": torch.zeros(3, 9).to(E4M3)}, r"x .*\[3, 9\].*\[3, 8\]"),
        ({"x": torch.zeros(8, 3).to(E4M3).T}, "x has strides"),
        ({"x": torch.zeros(3, 8).to(E5M2)}, "x is torch.float8_e5m2: must be one of"),
        ({"x": torch.zeros(3, 8)}, "x is torch.float32: must be one of"),
        ({"x": NARROW_X.to("meta")}, "x .* on meta: must be .* on cpu"),
        ({"x_scale": None}, "x_scale .*: must be one for each token"),
        ({"x_scale": torch.ones(4)}, r"x_scale .*\[4\].*\[3\]"),
        ({"x_scale": torch.ones(3).double()}, "x_scale is torch.float64"),
        ({"x": X}, "x_scale with x of torch.bfloat16: must be None"),
        ({"weight": INT8}, "int8 weights with x of torch.float8_e4m3fn: x must be float16 or"),
        ({"weight": WeightMatrix(torch.zeros(6, 8))}, "weights of torch.float32: must be one of"),
        ({"out": torch.zeros(3, 7)}, r"out .*\[3, 7\].*\[3, 6\]"),
        ({"out": torch.zeros(3, 6).double()}, "out is torch.float64"),
        ({"out": torch.zeros(6, 3).T}, "out has strides"),
        ({"out": OUT.to("meta")}, "out .* on meta"),
        ({"tile": Tile(8, 32)}, "tile of 8 x 32: .* 16 to 256 rows and at least 32 columns"),
        ({"tile": Tile(512, 32)}, "tile of 512 x 32"),
        ({"tile": Tile(16, 16)}, "tile of 16 x 16"),
        ({"workspace": new_workspace(511, 1, "cpu")}, "needs 512 and 1"),
        ({"workspace": new_workspace(512, 0, "cpu")}, "needs 512 and 1"),
        ({"workspace": new_workspace(512, 1, "meta")}, "workspace on meta"),
    ],
)
def test_refuses(changes: dict[str, Any], complaint: str) -> None:
    GOOD.launch()
    with pytest.raises(ValueError, match=complaint):
        replace(GOOD, **changes).launch()


def test_refuses_wide_activations_with_scales_and_outputs_in_them() -> None:
    GOOD_WIDE.launch()
    with pytest.raises(ValueError, match="must be None"):
        replace(GOOD_WIDE, x_scale=SCALES).launch()
    with pytest.raises(ValueError, match="tile of 16 x 8"):
        replace(GOOD_WIDE, tile=Tile(16, 8)).launch()
    square = WeightMatrix(torch.zeros(8, 8, dtype=torch.int8))
    with pytest.raises(ValueError, match="out shares memory with x"):
        replace(GOOD_WIDE, weight=square, out=X).launch()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("format", "x_dtype"),
    [("fp8_e4m3", E4M3), ("fp8_e5m2", torch.bfloat16), ("int8", torch.float16)],
)
@pytest.mark.parametrize("tokens", [16, 33])
@pytest.mark.parametrize(
    ("columns", "tile"), [(8192, Tile(64, 256, 4, 3, 2)), (4001, Tile(128, 128, 8, 3, 5))]
)
def test_large_products_repeat_bit_for_bit(
    columns: int,
    tile: Tile,
    tokens: int,
    format: str,
    x_dtype: torch.dtype,
    inputs: Callable[..., Any],
    assert_reset: Callable[..., None],
) -> None:
    make = inputs(torch.float32)
    weight = weight_of(make, 1001, columns, format)
    x, x_scale = x_of(make, tokens, columns, x_dtype)
    workspace, first = workspace_of(make, tokens, 1001, tile), None
    for _ in range(20):
        out = make.poisoned(tokens, 1001)
        operation = SplitKGemm(x, x_scale, weight, out, tile, workspace)
        operation.launch()
        assert_exact(operation)
        assert first is None or torch.equal(out, first)
        first = out
    assert_reset(workspace)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["fp8_e4m3", "int8"])
def test_overlapping_launches_in_a_graph_repeat_single_ones(
    kind: str, inputs: Callable[..., Any], assert_reset: Callable[..., None]
) -> None:
    make, tile = inputs(torch.float32), Tile(64, 256, 4, 3, 4)
    weights = [weight_of(make, 1024, 1024, kind) for _ in range(2)]
    x, _ = x_of(make, 5, 1024, torch.bfloat16)
    middle = make.poisoned(5, 1024, dtype=torch.bfloat16)
    out, workspace = make.poisoned(5, 1024), workspace_of(make, 5, 1024, tile)
    chain = [
        SplitKGemm(x, None, weights[0], middle, tile, workspace),
        SplitKGemm(middle, None, weights[1], out, tile, workspace),
    ]
    for operation in chain:
        operation.launch()
    expected = out.clone()
    graph = torch.cuda.CUDAGraph()
    for operation in chain:
        operation.launch(True)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(10):
            for operation in chain:
                operation.launch(True)
    for _ in range(20):
        middle.fill_(float("nan"))
        out.fill_(float("nan"))
        graph.replay()
        assert torch.equal(out, expected)
    assert_reset(workspace)
