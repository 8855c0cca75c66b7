import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.batched.norm_gate_up import norm_gate_up
from decodescope.kernels.ops.norm_gate_up import norm_gate_up_reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("batch", "intermediate", "hidden", "tile"),
    [
        (1, 8, 32, Tile(16, 32)),
        (2, 21, 64, Tile(16, 32)),
        (3, 16, 77, Tile(32, 64)),
        (8, 35, 100, Tile(32, 128)),
        (16, 19, 51, Tile(64, 64)),
    ],
)
@pytest.mark.parametrize("normed", [False, True])
def test_gated_product(
    batch: int,
    intermediate: int,
    hidden: int,
    tile: Tile,
    normed: bool,
    dtype: torch.dtype,
    inputs,
    assert_close,
) -> None:
    make = inputs(dtype)
    x = make.random(batch, hidden)
    scaled, biased = intermediate % 2 == 1, batch % 2 == 1
    gate_up = make.weight(2 * intermediate, hidden, scaled, biased)
    norm = make.norm(hidden) if normed else None
    out, again = make.poisoned(batch, intermediate), make.poisoned(batch, intermediate)
    norm_gate_up(x, norm, gate_up, out, tile)
    norm_gate_up(x, norm, gate_up, again, tile)
    assert_close(out, norm_gate_up_reference(x, norm, gate_up))
    assert torch.equal(out, again)


def test_gate_rows_come_before_up_rows(inputs) -> None:
    make = inputs(torch.float32)
    data = torch.zeros(6, 4, device=make.device)
    data[:3, 0], data[3:, 1] = 2.0, torch.tensor([1.0, 10.0, 100.0], device=make.device)
    x = torch.ones(2, 4, device=make.device)
    out = make.poisoned(2, 3)
    norm_gate_up(x, None, WeightMatrix(data), out, Tile(16, 16))
    silu = 2.0 / (1.0 + torch.exp(torch.tensor(-2.0)).item())
    expected = silu * data[3:, 1].expand(2, 3)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=0.0)


def test_refuses_tiles_below_a_tensor_core_block(inputs) -> None:
    make = inputs(torch.float32)
    with pytest.raises(ValueError, match="at least 16 x 16"):
        norm_gate_up(make.random(2, 8), None, make.weight(8, 8), make.poisoned(2, 4), Tile(8, 16))
