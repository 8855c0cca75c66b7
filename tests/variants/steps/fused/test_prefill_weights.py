"""The prefill of narrow weights: our kernel's matrices, and PyTorch's everywhere else."""

import pytest
import torch

from decodescope.kernels.host.weights import NARROW_DTYPES, quantized_rows
from decodescope.variants.model.quantized_weights import (
    Convert,
    QuantizedExperts,
    QuantizedLinear,
    converting_with,
    scaled,
)
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused import fused_step
from decodescope.variants.steps.fused.fused_step import dequantized, weights_on
from tests.helpers import families
from tests.helpers.fused_steps import fused, load_family

CONTEXT = families.ORIGINAL_MAX - 2


class Counted:
    """`dequantized`, with the dtypes it was asked for."""

    def __init__(self) -> None:
        self.dtypes: list[torch.dtype] = []

    def __call__(
        self, data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype
    ) -> torch.Tensor:
        self.dtypes.append(dtype)
        return dequantized(data, scale, dtype)


@pytest.mark.parametrize(
    ("family", "format"), [("llama-tied", "fp8_e5m2_cast"), ("mixtral", "fp8_e4m3")]
)
def test_the_prefill_takes_its_matrices_from_the_kernel(
    family: str, format: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_family(family, device)
    # All experts of a layer at once.
    loaded.model.config._experts_implementation = "grouped_mm"
    workload = DecodeWorkload(2, CONTEXT, 3, "fp32")
    step = fused(loaded, workload, f"fused+{format}")
    prompt = torch.arange(3, 3 + 2 * CONTEXT).view(2, CONTEXT) % 97
    counted = Counted()

    def prefilled(convert: Convert) -> tuple[torch.Tensor, torch.Tensor]:
        monkeypatch.setattr(fused_step, "weights_on", lambda device: convert)
        return step.prefill(prompt).clone(), torch.stack(step.plan.cache.k)

    for found, expected in zip(prefilled(counted), prefilled(scaled), strict=True):
        assert torch.equal(found, expected)
    kinds = QuantizedLinear | QuantizedExperts
    linears = [one for one in loaded.model.modules() if isinstance(one, kinds)]
    assert counted.dtypes == [torch.float32] * len(linears)
    assert {one.convert for one in linears} == {scaled}


@pytest.mark.parametrize(
    "dtype",
    [
        # The interpreter truncates to bfloat16, where PyTorch rounds.
        pytest.param(torch.bfloat16, marks=pytest.mark.gpu),
        torch.float16,
        torch.float32,
    ],
)
@pytest.mark.parametrize("format", list(NARROW_DTYPES))
def test_both_ways_give_the_same_bits(format, dtype, device: str) -> None:
    matrix = torch.randn(9, 4100, device=device) * torch.randn(9, 1, device=device)
    data, scale = quantized_rows(matrix, format)
    assert torch.equal(dequantized(data, scale, dtype), scaled(data, scale, dtype))
    assert torch.equal(dequantized(data, None, dtype), scaled(data, None, dtype))


def test_an_error_leaves_pytorchs_conversion_behind() -> None:
    linear = QuantizedLinear(*quantized_rows(torch.randn(3, 4), "int8"))
    with pytest.raises(ZeroDivisionError), converting_with(lambda *_: 1 / 0, linear):  # type: ignore[arg-type,return-value]
        linear(torch.ones(1, 4))
    assert linear.convert is scaled


def test_only_a_gpu_has_the_kernel() -> None:
    assert weights_on(torch.device("cuda")) is dequantized
    assert weights_on(torch.device("cpu")) is scaled
