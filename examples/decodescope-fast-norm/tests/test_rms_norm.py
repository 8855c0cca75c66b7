import pytest
import torch

from decodescope_fast_norm.rms_norm import rms_norm, rms_norm_reference

# One rounding; the interpreter truncates to bf16.
LIMITS = {torch.float32: 5e-7, torch.float16: 5e-4, torch.bfloat16: 8e-3}


def drawn(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return (torch.randn(shape, generator=generator) * 3 + 0.5).to(device, dtype)


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 1, 2048), (3, 80), (2, 3, 577), (1, 4, 2, 64)])
def test_agrees_with_the_reference(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> None:
    x = drawn(*shape, dtype=dtype, device=device)
    weight = drawn(shape[-1], dtype=dtype, device=device)
    out = rms_norm(x, weight, 1e-5)
    expected = rms_norm_reference(x, weight, 1e-5)
    assert (out.dtype, out.shape) == (dtype, x.shape)
    assert (out.double() - expected).norm() <= LIMITS[dtype] * expected.norm()
    assert torch.equal(out, rms_norm(x, weight, 1e-5))


def test_rows_may_be_strided(device: str) -> None:
    x = drawn(6, 100, dtype=torch.float32, device=device)[::2, 10:47]
    weight = drawn(37, dtype=torch.float32, device=device)
    expected = rms_norm_reference(x, weight, 1e-6)
    torch.testing.assert_close(rms_norm(x, weight, 1e-6).double(), expected)


def test_eps_counts_where_x_is_small(device: str) -> None:
    x = torch.full((1, 8), 1e-3, device=device)
    out = rms_norm(x, torch.ones(8, device=device), 3e-6)
    torch.testing.assert_close(out, torch.full((1, 8), 0.5, device=device))


def test_no_rows_give_no_rows(device: str) -> None:
    assert (
        rms_norm(torch.empty(0, 8, device=device), torch.ones(8, device=device), 1e-6).numel() == 0
    )


def test_another_weight_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match=r"weight \[7\] on .*: must be \[8\]"):
        rms_norm(torch.zeros(2, 8, device=device), torch.zeros(7, device=device), 1e-6)
