import pytest
import torch
from transformers.activations import ACT2FN

from decodescope.kernels.host.activation import Activation
from decodescope.kernels.ops.swiglu import BLOCK, Swiglu, swiglu_reference
from tests.helpers.kernel_inputs import LIMITS, poisoned, random, relative_error
from tests.helpers.refusals import refuses


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("rows", "features"), [(1, 1), (1, BLOCK), (3, BLOCK + 1), (2, 333)])
def test_halves_of_one_product(rows: int, features: int, dtype: torch.dtype, device: str) -> None:
    product = random(rows, 2 * features, dtype=dtype, device=device) * 3
    gate, up = product.chunk(2, dim=-1)
    out = torch.full((rows, features), float("nan"), dtype=dtype, device=device)
    again = poisoned(out)
    Swiglu(gate, up, out).launch()
    Swiglu(gate, up, again).launch()
    assert relative_error(out, swiglu_reference(gate, up)) < LIMITS[dtype]
    assert torch.equal(out, again)


@pytest.mark.parametrize(
    ("activation", "name"), [("silu", "silu"), ("gelu_tanh", "gelu_pytorch_tanh")]
)
def test_agrees_with_transformers_in_fp32(activation: Activation, name: str, device: str) -> None:
    gate, up = random(2, 200, device=device) * 4, random(2, 200, device=device)
    out = poisoned(gate)
    operation = Swiglu(gate, up, out, activation)
    operation.launch()
    torch.testing.assert_close(out, ACT2FN[name](gate) * up, atol=1e-6, rtol=1e-6)
    assert relative_error(out, operation.reference(0)[0]) < LIMITS[torch.float32]


def test_a_closed_gate_lets_nothing_through(device: str) -> None:
    up = random(2, 50, device=device)
    out = poisoned(up)
    Swiglu(torch.zeros_like(up), up, out).launch()
    assert not out.any()


def test_gates_far_from_zero_are_linear_or_closed(device: str) -> None:
    gate = torch.tensor([[80.0, 40.0, -40.0, -80.0]], device=device)
    out = poisoned(gate)
    Swiglu(gate, torch.full_like(gate, 2.0), out).launch()
    assert out[0, :2].tolist() == [160.0, 80.0]
    assert out[0, 2:].abs().max().item() < 1e-14


def test_out_may_be_the_gate(device: str) -> None:
    gate, up = random(1, 70, device=device), random(1, 70, device=device) + 1
    expected = swiglu_reference(gate, up)
    Swiglu(gate, up, gate).launch()
    assert relative_error(gate, expected) < LIMITS[torch.float32]


test_refuses = refuses(
    (Swiglu(gate, up, out).launch, complaint)
    for gate, up, out, complaint in [
        (torch.zeros(8), torch.zeros(8), torch.zeros(8), r"\[rows, features\]"),
        (torch.zeros(1, 8).int(), torch.zeros(1, 8), torch.zeros(1, 8), "gate is torch.int32"),
        (torch.zeros(1, 8), torch.zeros(1, 9), torch.zeros(1, 8), r"up .*\[1, 8\]"),
        (torch.zeros(1, 8), torch.zeros(1, 8), torch.zeros(1, 8).half(), "out is torch.float16"),
        (torch.zeros(2, 16)[:, ::2], torch.zeros(2, 8), torch.zeros(2, 8), "last one must be 1"),
    ]
)
