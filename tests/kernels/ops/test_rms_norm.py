import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import MAX_FEATURES, RmsNorm, rms_norm_reference
from tests.helpers.kernel_inputs import LIMITS, poisoned, random, relative_error
from tests.helpers.refusals import refuses

DTYPES = list(LIMITS)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "features"), [(1, 1), (1, 64), (3, 80), (2, 2048), (1, 4095), (7, 577)]
)
def test_rows_of_any_length(rows: int, features: int, dtype: torch.dtype, device: str) -> None:
    x = random(rows, features, dtype=dtype, device=device) * 3 + 0.5
    norm = Norm(random(features, dtype=dtype, device=device), 1e-5)
    out, again = poisoned(x), poisoned(x)
    RmsNorm(x, norm, out).launch()
    RmsNorm(x, norm, again).launch()
    assert relative_error(out, rms_norm_reference(x, norm)) < LIMITS[dtype]
    assert torch.equal(out, again)


def test_agrees_with_transformers_in_fp32(device: str) -> None:
    llama = LlamaRMSNorm(192, eps=1e-3).to(device)
    with torch.no_grad():
        llama.weight.copy_(random(192, dtype=torch.float32, device=device))
        # Small values, so that eps matters.
        x = random(5, 192, dtype=torch.float32, device=device) / 20
        out = poisoned(x)
        RmsNorm(x, Norm(llama.weight, 1e-3), out).launch()
        torch.testing.assert_close(out, llama(x), atol=1e-6, rtol=1e-6)


def test_a_centered_norm_is_a_layer_norm_without_bias(device: str) -> None:
    x = random(5, 77, dtype=torch.float32, device=device) + 3
    weight, out = random(77, seed=1, dtype=torch.float32, device=device), poisoned(x)
    RmsNorm(x, Norm(weight, 1e-3, centered=True), out).launch()
    expected = torch.nn.functional.layer_norm(x, (77,), weight, eps=1e-3)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_of_a_fused_projection_in_place(dtype: torch.dtype, device: str) -> None:
    batch, heads, head_dim = 3, 5, 48
    projection = random(batch, (heads + 4) * head_dim, dtype=dtype, device=device)
    before = projection.clone()
    norm = Norm(random(head_dim, dtype=dtype, device=device), 1e-6)
    q = projection[:, : heads * head_dim].view(batch, heads, head_dim)
    expected = rms_norm_reference(q, norm)
    RmsNorm(q, norm, q).launch()
    assert relative_error(q, expected) < LIMITS[dtype]
    rest = slice(heads * head_dim, None)
    assert torch.equal(projection[:, rest], before[:, rest])


def test_strided_rows_into_strided_rows(device: str) -> None:
    wide = random(6, 100, dtype=torch.float32, device=device)
    result = poisoned(wide)
    norm = Norm(random(37, dtype=torch.float32, device=device), 1e-6)
    RmsNorm(wide[::2, 10:47], norm, result[1::2, 50:87]).launch()
    expected = rms_norm_reference(wide[::2, 10:47], norm)
    assert relative_error(result[1::2, 50:87], expected) < LIMITS[torch.float32]
    assert result.isfinite().sum().item() == 3 * 37


@pytest.mark.parametrize("factor", [-1.0, 4.0, 1e-3])
def test_the_scale_of_the_input_cancels(factor: float, device: str) -> None:
    x = random(2, 300, dtype=torch.float32, device=device)
    norm = Norm(random(300, dtype=torch.float32, device=device), 0.0)
    plain, scaled = poisoned(x), poisoned(x)
    RmsNorm(x, norm, plain).launch()
    RmsNorm(x * factor, norm, scaled).launch()
    sign = 1 if factor > 0 else -1
    torch.testing.assert_close(scaled, plain * sign, atol=1e-6, rtol=1e-6)


def test_values_whose_squares_overflow_fp16(device: str) -> None:
    x = random(1, 128, dtype=torch.float16, device=device) * 3000
    norm = Norm(torch.ones(128, dtype=torch.float16, device=device), 1e-6)
    out = poisoned(x)
    RmsNorm(x, norm, out).launch()
    assert relative_error(out, rms_norm_reference(x, norm)) < LIMITS[torch.float16]


def test_a_row_of_zeros_is_zeros(device: str) -> None:
    x = torch.zeros(1, 33, device=device)
    out = poisoned(x)
    RmsNorm(x, Norm(torch.ones(33, device=device), 1e-6), out).launch()
    assert not out.any()


test_refuses = refuses(
    (RmsNorm(x, Norm(weight, 1e-6), out).launch, complaint)
    for x, weight, out, complaint in [
        (torch.zeros(8), torch.zeros(8), torch.zeros(8), r"\[rows, features\]"),
        (torch.zeros(2, 8).long(), torch.zeros(8), torch.zeros(2, 8), "x is torch.int64"),
        (torch.zeros(2, 8), torch.zeros(7), torch.zeros(2, 8), r"norm weight .*must be .*\[8\]"),
        (torch.zeros(2, 8), torch.zeros(8), torch.zeros(3, 8), r"out .*must be .*\[2, 8\]"),
        (torch.zeros(2, 8), torch.zeros(8), torch.zeros(2, 8).half(), "out is torch.float16"),
        (torch.zeros(8, 2).T, torch.zeros(8), torch.zeros(2, 8), "x has strides"),
        (
            torch.zeros(1, MAX_FEATURES + 1),
            torch.zeros(MAX_FEATURES + 1),
            torch.zeros(1, MAX_FEATURES + 1),
            f"must be 1 to {MAX_FEATURES}",
        ),
    ]
)
