import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import RmsNorm, rms_norm_reference
from decodescope.kernels.ops.rms_norm_residual import RmsNormResidual, rms_norm_residual_reference
from tests.helpers.kernel_inputs import LIMITS, poisoned, random, relative_error
from tests.helpers.refusals import refuses


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("rows", "features"), [(1, 7), (1, 2048), (5, 577), (16, 96)])
def test_sum_and_norm(rows: int, features: int, dtype: torch.dtype, device: str) -> None:
    x = random(rows, features, dtype=dtype, device=device)
    residual = random(rows, features, seed=1, dtype=dtype, device=device) * 4
    norm = Norm(random(features, dtype=dtype, device=device), 1e-5)
    total, _ = rms_norm_residual_reference(x, residual, norm)
    first, second = residual.clone(), residual.clone()
    out, again, alone = poisoned(x), poisoned(x), poisoned(x)
    RmsNormResidual(x, first, norm, out).launch()
    RmsNormResidual(x, second, norm, again).launch()
    RmsNorm(first, norm, alone).launch()
    assert relative_error(first, total) < LIMITS[dtype]
    assert relative_error(out, rms_norm_reference(first, norm)) < LIMITS[dtype]
    # The norm is that of the rounded sum, as a separate launch computes it.
    assert torch.equal(out, alone)
    assert torch.equal(first, second)
    assert torch.equal(out, again)


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(("rows", "features"), [(1, 7), (5, 577), (16, 96)])
@pytest.mark.parametrize("centered", [False, True])
def test_what_is_added_is_normed_first(
    rows: int, features: int, centered: bool, dtype: torch.dtype, device: str
) -> None:
    x = random(rows, features, dtype=dtype, device=device)
    residual = random(rows, features, seed=1, dtype=dtype, device=device) * 4 + 1
    weights = (random(features, seed=seed, dtype=dtype, device=device) for seed in (2, 3))
    added_norm, norm = Norm(next(weights), 1e-3), Norm(next(weights), 1e-5, centered)
    only_added, both, out = residual.clone(), residual.clone(), poisoned(x)
    total, _ = rms_norm_residual_reference(x, residual, norm, added_norm)
    RmsNormResidual(x, only_added, None, None, added_norm).launch()
    RmsNormResidual(x, both, norm, out, added_norm).launch()
    assert relative_error(only_added, total) < LIMITS[dtype]
    assert torch.equal(both, only_added)
    assert relative_error(out, rms_norm_reference(both, norm)) < LIMITS[dtype]


@pytest.mark.parametrize("dtype", list(LIMITS))
def test_the_sum_is_multiplied_by_a_factor(dtype: torch.dtype, device: str) -> None:
    x = random(3, 70, dtype=dtype, device=device)
    residual = random(3, 70, seed=1, dtype=dtype, device=device)
    norms = [Norm(random(70, seed=seed, dtype=dtype, device=device), 1e-5) for seed in (2, 3)]
    factor, out = torch.tensor([0.37], dtype=dtype, device=device), poisoned(x)
    added = rms_norm_reference(x, norms[0])
    expected = (residual.double() + added) * factor.double()
    RmsNormResidual(x, residual, norms[1], out, norms[0], factor).launch()
    assert relative_error(residual, expected) < LIMITS[dtype]
    assert relative_error(out, rms_norm_reference(residual, norms[1])) < LIMITS[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_sum_is_bitwise_that_of_pytorch(dtype: torch.dtype, device: str) -> None:
    x = random(3, 100, dtype=dtype, device=device)
    residual = random(3, 100, seed=1, dtype=dtype, device=device)
    expected = residual + x
    norm = Norm(torch.ones(100, dtype=dtype, device=device), 1e-6)
    RmsNormResidual(x, residual, norm, poisoned(x)).launch()
    assert torch.equal(residual, expected)


def test_agrees_with_transformers_in_fp32(device: str) -> None:
    llama = LlamaRMSNorm(192, eps=1e-5).to(device)
    x = random(2, 192, dtype=torch.float32, device=device)
    residual = random(2, 192, seed=1, dtype=torch.float32, device=device)
    out = poisoned(x)
    with torch.no_grad():
        llama.weight.copy_(random(192, dtype=torch.float32, device=device))
        expected = llama(residual + x)
        RmsNormResidual(x, residual, Norm(llama.weight, 1e-5), out).launch()
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-6)


def test_out_may_be_x(device: str) -> None:
    x = random(2, 50, dtype=torch.float32, device=device)
    residual = random(2, 50, seed=1, dtype=torch.float32, device=device)
    norm = Norm(random(50, dtype=torch.float32, device=device), 1e-6)
    _, expected = rms_norm_residual_reference(x, residual, norm)
    RmsNormResidual(x, residual, norm, x).launch()
    assert relative_error(x, expected) < LIMITS[torch.float32]


ROWS = torch.zeros(2, 8)
CENTERED = Norm(torch.zeros(8), 1e-6, centered=True)


test_refuses_norms = refuses(
    [
        (RmsNormResidual(torch.zeros(2, 8), ROWS, CENTERED, None).launch, "both given, or both"),
        (RmsNormResidual(torch.zeros(2, 8), ROWS, None, None, CENTERED).launch, "a centered norm"),
    ]
)

test_refuses = refuses(
    (RmsNormResidual(x, residual, Norm(weight, 1e-6), out).launch, complaint)
    for x, residual, weight, out, complaint in [
        (torch.zeros(8), ROWS, torch.zeros(8), torch.zeros(2, 8), r"x \[8\]"),
        (torch.zeros(2, 8), torch.zeros(1, 8), torch.zeros(8), ROWS, r"residual .*\[2, 8\]"),
        (torch.zeros(2, 8), torch.zeros(2, 8).half(), torch.zeros(8), ROWS, "residual is .*16"),
        (torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(8, 1), ROWS, r"weight .*\[8\]"),
        (torch.zeros(2, 16)[:, :8], torch.zeros(2, 8), torch.zeros(8), ROWS, "contiguous"),
        (torch.zeros(2, 8), ROWS, torch.zeros(8), ROWS, "out is the residual"),
    ]
)
