"""E4M3 activations with a scale for each token, and the products that take them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.product import Product
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix, quantized_rows
from decodescope.kernels.ops.linear import Linear, linear_reference
from decodescope.kernels.ops.linear_residual import LinearResidual, split_workspace
from decodescope.kernels.ops.norm_gate_up import NormGateUp
from decodescope.kernels.ops.norm_head import NormHead
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope, qkv_workspace
from decodescope.kernels.ops.quantize_rows import QuantizeRows, quantize_rows_reference
from decodescope.kernels.ops.rms_norm import MAX_FEATURES
from decodescope.kernels.ops.rope import RopeTable

E4M3 = torch.float8_e4m3fn
DTYPES = [torch.float32, torch.float16, torch.bfloat16]
# Half the distance of neighbouring codes: as a share of the value, and the least.
HALF_STEP, LEAST_HALF_STEP = 2.0**-4, 2.0**-10
NAN, INFINITY = float("nan"), float("inf")


def quantized(x: torch.Tensor, norm: Norm | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales in memory that was NaN before."""
    codes = torch.full(x.shape, 0x7F, dtype=torch.uint8, device=x.device).view(E4M3)
    scale = torch.full((len(x),), NAN, device=x.device)
    QuantizeRows(x, norm, codes, scale).launch()
    return codes, scale


def bits(codes: torch.Tensor) -> torch.Tensor:
    return codes.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (3, 77), (64, 130), (2, 4095), (1, 14336)])
def test_rows_without_a_norm_are_those_of_torch(shape: tuple[int, int], dtype, inputs) -> None:
    x = inputs(dtype).random(*shape)
    x *= 10.0 ** (torch.arange(len(x), device=x.device) % 7 - 3)[:, None].to(dtype)
    codes, scale = quantized(x)
    # On the CPU: on a GPU, PyTorch multiplies by 1 / 448 instead of dividing.
    expected, expected_scale = quantized_rows(x.cpu(), "fp8_e4m3")
    assert torch.equal(scale.cpu(), expected_scale)
    assert torch.equal(bits(codes).cpu(), bits(expected))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 64), (5, 77), (2, 4096)])
def test_rows_with_a_norm(shape: tuple[int, int], dtype, inputs) -> None:
    make = inputs(dtype)
    x, norm = make.random(*shape) * 3 + 0.5, make.norm(shape[1])
    codes, scale = quantized(x, norm)
    numbers, expected_scale = quantize_rows_reference(x, norm)
    assert ((scale - expected_scale).abs() <= 1e-6 * expected_scale).all()
    slack = 1e-6 * numbers.abs()
    half = (HALF_STEP * numbers.abs()).clamp(min=LEAST_HALF_STEP)
    assert ((codes.double() - numbers).abs() <= half + slack).all()
    assert (codes.double().abs().amax(1) == 448).all()


def test_rows_of_special_values(device: str) -> None:
    rows = [
        [0.0, -0.0, 0.0, 0.0],
        [INFINITY, -INFINITY, 1.0, 0.0],
        [NAN, 448.0, -1.0, 2.0**-9],
        [NAN, NAN, NAN, NAN],
        [1e-44, 0.0, 0.0, -1e-44],
        [3.4028235e38, 1e38, -3.4028235e38, 0.0],
    ]
    codes, scale = quantized(torch.tensor(rows, device=device))
    most = torch.finfo(torch.float32).max / 448
    torch.testing.assert_close(
        scale.cpu(), torch.tensor([1.0, most, 1.0, 1.0, 1.0, most]), rtol=1e-6, atol=0
    )
    expected = [
        [0.0, -0.0, 0.0, 0.0],
        [448.0, -448.0, 0.0, 0.0],
        [NAN, 448.0, -1.0, 2.0**-9],
        [NAN, NAN, NAN, NAN],
        [0.0, 0.0, 0.0, -0.0],
        [448.0, 128.0, -448.0, 0.0],
    ]
    torch.testing.assert_close(
        codes.float().cpu(), torch.tensor(expected), rtol=0, atol=0, equal_nan=True
    )
    assert codes.float()[0].signbit().tolist() == [False, True, False, False]


def test_a_token_does_not_see_the_others(inputs) -> None:
    make = inputs(torch.bfloat16)
    x, norm = make.random(6, 90), make.norm(90)
    x[2], x[4] = NAN, 1e15
    codes, scale = quantized(x, norm)
    for row in range(6):
        alone, alone_scale = quantized(x[row : row + 1], norm)
        assert torch.equal(bits(alone[0]), bits(codes[row]))
        assert torch.equal(alone_scale[0], scale[row])


def test_bytes_are_those_of_its_tensors() -> None:
    x, out = torch.zeros(3, 8, dtype=torch.bfloat16), torch.zeros(3, 8).to(E4M3)
    operation = QuantizeRows(x, None, out, torch.zeros(3))
    assert operation.bytes_moved(0) == 3 * 8 * 2 + 3 * 8 + 3 * 4
    normed = replace(operation, norm=Norm(torch.zeros(8, dtype=torch.bfloat16), 1e-5))
    assert normed.bytes_moved(0) == operation.bytes_moved(0) + 16
    weight = WeightMatrix(torch.zeros(6, 8).to(E4M3), torch.ones(6))
    product = Linear(out, weight, torch.zeros(3, 6), Tile(16, 32), x_scale=torch.zeros(3))
    assert product.bytes_moved(0) == 3 * 8 + 3 * 4 + 6 * 8 + 6 * 4 + 3 * 6 * 4


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x": torch.zeros(8)}, r"x \[8\]: must be \[rows, features\]"),
        ({"x": torch.zeros(3, 8).to(E4M3)}, "x is torch.float8_e4m3fn"),
        ({"x": torch.zeros(3, 0)}, f"0 features: must be 1 to {MAX_FEATURES}"),
        ({"out": torch.zeros(3, 8)}, "out is torch.float32"),
        ({"scale": torch.zeros(2)}, r"scale is torch.float32 \[2\]"),
        ({"scale": torch.zeros(3, dtype=torch.float16)}, "scale is torch.float16"),
        ({"norm": Norm(torch.zeros(7), 1e-5)}, "norm weight is"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], complaint: str) -> None:
    fitting = QuantizeRows(torch.zeros(3, 8), None, torch.zeros(3, 8).to(E4M3), torch.zeros(3))
    with pytest.raises(ValueError, match=complaint):
        replace(fitting, **change).launch()


def test_outputs_in_the_memory_of_x_are_refused() -> None:
    x = torch.zeros(1, 8)
    with pytest.raises(ValueError, match="out shares memory with x"):
        QuantizeRows(x, None, x[:, :2].view(E4M3), torch.zeros(1)).launch()
    with pytest.raises(ValueError, match="scale shares memory with x"):
        QuantizeRows(x, None, torch.zeros(1, 8).to(E4M3), x[0, :1]).launch()


# --- products ---


def assert_exact(
    out: torch.Tensor, expected: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, weight: Any
) -> None:
    """Each sum is as near to float64 as float32 sums of its products are, and is rounded once. The
    tensor cores of Hopper add FP8 products with about 14 bits."""
    sizes = (x.double().abs() * scale[:, None]) @ weight.dense().abs().T
    sums = 2.0**-12 if out.is_cuda and len(x) > 1 else 2.0**-21
    # The interpreter truncates to bfloat16: up to a whole unit.
    units = {torch.float32: 2.0**-24, torch.float16: 2.0**-11}
    rounding = units.get(out.dtype, 2.0**-8 if out.is_cuda else 2.0**-7)
    bound = rounding * expected.abs() + sums * sizes + 2.0**-24
    assert ((out.double() - expected).abs() <= bound).all()


SHAPES = [
    (1, 40, 96, Tile(8, 128)),
    (1, 40, 200, Tile(16, 64, num_stages=2)),
    (2, 70, 96, Tile(64, 32)),
    (5, 33, 77, Tile(16, 64)),
    (17, 64, 128, Tile(64, 64, num_stages=3)),
    (64, 18, 131, Tile(16, 64)),
    (3, 20, 80, Tile(16, 16)),
]


def operands(make: Any, batch: int, rows: int, columns: int, format: str = "fp8_e4m3") -> Any:
    """Codes and scales of tokens of different sizes, and weights with scales and a bias."""
    x = make.random(batch, columns, dtype=torch.float32)
    x[-1] *= 20
    return *quantized_rows(x, "fp8_e4m3"), make.narrow(rows, columns, format, biased=True)


@pytest.mark.parametrize("format", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "rows", "columns", "tile"), SHAPES)
def test_linear(batch: int, rows: int, columns: int, tile: Tile, dtype, format, inputs) -> None:
    make = inputs(dtype)
    x, scale, weight = operands(make, batch, rows, columns, format)
    out = make.poisoned(batch, rows)
    operation = Linear(x, weight, out, tile, x_scale=scale)
    operation.launch()
    expected = linear_reference(x.double() * scale[:, None], weight)
    assert torch.equal(operation.reference(0)[0], expected)
    assert_exact(out, expected, x, scale, weight)


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("batch", [1, 5])
def test_linear_residual(batch: int, splits: int, inputs, assert_reset: Callable) -> None:
    make = inputs(torch.float32)
    x, scale, weight = operands(make, batch, 40, 300)
    residual, tile = make.random(batch, 40, seed=9), Tile(16, 32, splits=splits)
    workspace = make.workspace(*split_workspace(weight, tile, batch))
    operation = LinearResidual(x, weight, residual, tile, workspace, scale)
    (expected,) = operation.reference(0)
    operation.launch()
    assert_exact(residual, expected, x, scale, weight)
    assert_reset(workspace)


def close(out: torch.Tensor, expected: torch.Tensor, batch: int) -> bool:
    """Nearer than a code that is one off, or a scale that is left out, would bring it."""
    limit = 1e-3 if out.is_cuda and batch > 1 else 1e-6
    return bool((out.double() - expected).norm() <= limit * expected.norm())


@pytest.mark.parametrize("batch", [1, 5])
def test_gate_up(batch: int, inputs) -> None:
    make = inputs(torch.float32)
    x, scale, weight = operands(make, batch, 48, 96)
    out = make.poisoned(batch, 24)
    operation = NormGateUp(x, None, weight, out, Tile(16, 64), scale)
    operation.launch()
    assert close(out, operation.reference(0)[0], batch)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 5])
def test_the_head_rounds_logits_to_the_models_dtype(batch: int, dtype, inputs) -> None:
    make = inputs(dtype)
    x, scale, weight = operands(make, batch, 70, 96)
    logits = make.poisoned(batch, 70, dtype=torch.float32)
    tokens = torch.full((batch, 4), -1, device=make.device)
    position, workspace = make.position(1), make.workspace(0, 1)
    operation = NormHead(
        x, None, weight, tokens, position, Tile(16, 64), workspace, logits, True, scale, dtype
    )
    operation.launch()
    assert torch.equal(logits, logits.to(dtype).float())
    assert_exact(logits.to(dtype), operation.reference(1)[0], x, scale, weight)
    assert torch.equal(tokens[:, 2], logits.argmax(-1))
    with pytest.raises(ValueError, match=r"dtype None with x of torch.float8_e4m3fn"):
        replace(operation, dtype=None).launch()


@pytest.mark.parametrize("batch", [1, 5])
def test_qkv(batch: int, inputs) -> None:
    make = inputs(torch.float32)
    heads, kv_heads, size, capacity = 4, 2, 32, 6
    x, scale, weight = operands(make, batch, (heads + 2 * kv_heads) * size, 96)
    angles = make.random(capacity, size // 2)
    q = make.poisoned(batch, heads, size)
    caches = [make.poisoned(batch, kv_heads, capacity, size) for _ in "kv"]
    tile = Tile(16, 32, splits=1 if batch == 1 else 2)
    operation = NormQkvRope(
        x,
        None,
        weight,
        RopeTable(angles.cos(), angles.sin()),
        make.position(3),
        q,
        *caches,
        tile,
        make.workspace(*qkv_workspace(heads + 2 * kv_heads, 0, size, tile, batch)),
        x_scale=scale,
    )
    operation.launch()
    for out, expected in zip(operation.outputs(3), operation.reference(3), strict=True):
        assert close(out, expected, batch)
    assert any(one is scale for one in operation.inputs(3))


WEIGHT = WeightMatrix(torch.zeros(16, 32).to(E4M3), torch.ones(16))
X, SCALE, OUT = torch.zeros(3, 32).to(E4M3), torch.ones(3), torch.zeros(3, 16)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"x_scale": None}, "x_scale with x of torch.float8_e4m3fn: must be one for each token"),
        ({"x": torch.zeros(3, 32)}, "x_scale with x of torch.float32: must be None"),
        ({"x_scale": torch.ones(2)}, r"x_scale is torch.float32 \[2\]"),
        ({"x_scale": torch.ones(3).half()}, "x_scale is torch.float16"),
        ({"weight": WeightMatrix(torch.zeros(16, 32))}, "fp32 weights with x of torch.float8"),
        ({"weight": WeightMatrix(torch.zeros(16, 32, dtype=torch.int8))}, "int8 weights with x"),
        ({"norm": Norm(torch.zeros(32), 1e-5)}, "a norm with x_scale"),
        ({"out": torch.zeros(3, 16).to(E4M3)}, "out is torch.float8_e4m3fn"),
        ({"tile": Tile(16, 8)}, "at least 16 x 16"),
    ],
)
def test_products_refuse_what_does_not_fit(change: dict[str, Any], complaint: str) -> None:
    fitting: Product | KernelOperation = Linear(X, WEIGHT, OUT, Tile(16, 32), x_scale=SCALE)
    with pytest.raises(ValueError, match=complaint):
        replace(fitting, **change).launch()
