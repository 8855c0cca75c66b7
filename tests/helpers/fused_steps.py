"""Builds fused steps, and transformers' own for comparison, on one model."""

from typing import Any

import torch

from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.eager_step import EagerStep
from decodescope.variants.steps.fused.fused_step import FusedStep, build_fused
from tests.helpers import families

# ||logits - transformers' logits|| / ||transformers' logits|| in fp32. On a GPU transformers' own
# attention and products differ between their kernels by more than ours do from float64.
LOGIT_ERROR = {"cpu": 3e-6, "cuda": 1e-4}


def load_family(
    name: str, device: str, dtype: torch.dtype = torch.float32, **changes: Any
) -> LoadedModel:
    """A family's model on `device`, allowed as many positions as a test likes."""
    torch.set_num_threads(1)
    model = families.build(name, dtype, device=device, **changes)
    return LoadedModel(model, None, "random", name, None)


def fused(loaded: LoadedModel, workload: DecodeWorkload, spec: str = "fused") -> FusedStep:
    """The step that `spec` writes."""
    device = str(loaded.model.device.type)
    return build_fused(VariantSpec.parse(spec), loaded, workload, device)


def both(
    loaded: LoadedModel, workload: DecodeWorkload, spec: str = "fused"
) -> tuple[FusedStep, EagerStep]:
    """The fused step and transformers' own, after the same prompt, which gave the same token."""
    steps = fused(loaded, workload, spec), EagerStep(loaded, workload)
    prompt = prompt_of(loaded, workload)
    first, expected = (step.prefill(prompt) for step in steps)
    assert torch.equal(first, expected)
    return steps


def prompt_of(loaded: LoadedModel, workload: DecodeWorkload, seed: int = 0) -> torch.Tensor:
    """Random ids [batch, context] on the CPU."""
    return _ids(loaded, (workload.batch, workload.context), seed)


def ids_of(loaded: LoadedModel, batch: int, seed: int) -> torch.Tensor:
    """Random ids [batch] on the model's device."""
    return _ids(loaded, (batch,), seed).to(loaded.model.device)


def decoded(step: Any, count: int) -> torch.Tensor:
    """The ids of `count` steps, [batch, count]."""
    return torch.stack([step.step() for _ in range(count)], dim=1)


def logits_agree(logits: torch.Tensor, expected: torch.Tensor) -> bool:
    return bool(_logit_errors(logits, expected).max() < LOGIT_ERROR[logits.device.type])


def assert_logits_agree(logits: torch.Tensor, expected: torch.Tensor) -> None:
    """Both [batch, vocabulary] in fp32, each sequence by itself."""
    assert logits_agree(logits, expected), _logit_errors(logits, expected).tolist()


def _logit_errors(logits: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    assert logits.shape == expected.shape
    assert logits.dtype == expected.dtype == torch.float32
    return (logits - expected).norm(dim=-1) / expected.norm(dim=-1)


def _ids(loaded: LoadedModel, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(loaded.vocab_size, shape, generator=generator)
