import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.batched.linear import linear
from decodescope.kernels.ops.linear import linear_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("batch", "rows", "columns", "tile"),
    [
        (1, 16, 64, Tile(16, 64)),
        (2, 31, 100, Tile(32, 64)),
        (7, 30, 77, Tile(16, 64)),
        (16, 33, 129, Tile(64, 128)),
    ],
)
def test_product(
    batch: int,
    rows: int,
    columns: int,
    tile: Tile,
    normed: bool,
    dtype: torch.dtype,
    inputs,
    assert_close,
) -> None:
    make = inputs(dtype)
    x = make.random(batch, columns) * 3
    weight = make.weight(rows, columns, scaled=rows % 2 == 1, biased=batch % 2 == 1)
    norm = make.norm(columns) if normed else None
    out, again = make.poisoned(batch, rows), make.poisoned(batch, rows)
    linear(x, weight, out, tile, norm)
    linear(x, weight, again, tile, norm)
    assert_close(out, linear_reference(x, weight, norm))
    assert torch.equal(out, again)


def test_float32_weights_of_a_float16_model(inputs, assert_close) -> None:
    make = inputs(torch.float16)
    x, out = make.random(3, 40), make.poisoned(3, 18)
    weight = WeightMatrix(make.random(18, 40, dtype=torch.float32))
    linear(x, weight, out, Tile(16, 32))
    assert_close(out, linear_reference(x, WeightMatrix(weight.data.half())))


@pytest.mark.parametrize(("size", "weight_size"), [(60_000.0, 40.0), (60_000.0, 1.0), (1e-4, 0.02)])
def test_a_norm_keeps_float16_within_its_range(
    size: float, weight_size: float, inputs, assert_close
) -> None:
    """g x alone would be infinite, or lose its digits."""
    make = inputs(torch.float16)
    x, out = make.random(2, 48).sign() * size, make.poisoned(2, 16)
    norm = Norm((make.random(48, seed=5).abs() + 1) * weight_size, 1e-12)
    weight = make.weight(16, 48)
    linear(x, weight, out, Tile(16, 16), norm)
    assert_close(out, linear_reference(x, weight, norm))


def test_a_sequence_does_not_depend_on_its_neighbours(inputs) -> None:
    make = inputs(torch.float32)
    x, weight, norm = make.random(5, 50), make.weight(20, 50), make.norm(50)
    together, alone = make.poisoned(5, 20), make.poisoned(1, 20)
    linear(x, weight, together, Tile(32, 32), norm)
    linear(x[3:4], weight, alone, Tile(32, 32), norm)
    assert torch.equal(together[3:4], alone)


def test_a_norm_of_scaled_input_gives_the_same(inputs, assert_close) -> None:
    make = inputs(torch.float32)
    x, weight, norm = make.random(4, 50), make.weight(20, 50), Norm(make.random(50, seed=9), 1e-20)
    out, scaled = make.poisoned(4, 20), make.poisoned(4, 20)
    linear(x, weight, out, Tile(32, 64), norm)
    linear(x * 1024, weight, scaled, Tile(32, 64), norm)
    assert_close(scaled, out.double())


def test_refuses_tiles_below_a_tensor_core_block(inputs) -> None:
    make = inputs(torch.float32)
    with pytest.raises(ValueError, match="at least 16 x 16"):
        linear(make.random(2, 8), make.weight(8, 8), make.poisoned(2, 8), Tile(8, 8))
