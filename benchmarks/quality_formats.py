"""The formats that `quality` scores: copies of a model, their logits, and sums over the text."""

import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from benchmarks.quality_scores import Distributions, Tally
from decodescope.analyzer.errors import DecodescopeError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.quantize import quantization_of, quantize_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.registry import build_variant
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.step import DecodeStep

DTYPE: DType = "bf16"
BF16 = "bf16"
PROMPT = 32


@dataclass(slots=True)
class Format:
    """A format with its own copy of the model, and its sums against each reference."""

    name: str
    loaded: LoadedModel
    step: DecodeStep | None
    no_steps: str | None
    forward: dict[str, Tally] = field(default_factory=dict)
    steps: dict[str, Tally] = field(default_factory=dict)


def made_formats(
    names: Sequence[str], loaded: LoadedModel, batch: int, positions: int, device: str
) -> Iterator[Format]:
    """Each format on a copy of the model, with its fused step if it can be built here."""
    workload = DecodeWorkload(batch, PROMPT, positions, DTYPE)
    kernels = "fused+graph" if device == "cuda" else "fused"
    for name in names:
        sys.stderr.write(f"preparing {name}\n")
        variant = VariantSpec.parse(f"{kernels}+{name}")
        own = replace(loaded, model=copy.deepcopy(loaded.model))
        if (quantization := quantization_of(variant)) is not None:
            quantize_model(own.name, own.model, quantization, lambda _: None)
        try:
            yield Format(name, own, build_variant(str(variant), own, workload, device), None)
        except DecodescopeError as error:
            yield Format(name, own, None, str(error))


def has_forward(name: str) -> bool:
    """Whether the forward pass of transformers on the stored weights is this format."""
    spec = VariantSpec.parse(f"fused+{name}")
    return spec.weight_format != "w8a8" and spec.kv_format is None


def decoded_logits(
    step: DecodeStep, windows: torch.Tensor, batch: int, positions: int
) -> torch.Tensor:
    """Logits [windows, positions, vocabulary] of a step for `batch` sequences that decodes the
    windows' own ids; with fewer windows it decodes the last one several times."""
    rows = torch.arange(batch, device=windows.device).clamp(max=len(windows) - 1)
    ids = windows[rows]
    step.prefill(ids[:, :PROMPT].contiguous())
    logits = [
        step.forced_step(ids[:, place].contiguous())[: len(windows)]
        for place in range(PROMPT, PROMPT + positions)
    ]
    return torch.stack(logits, 1)


@torch.no_grad()
def score(
    formats: Sequence[Format],
    loaded: LoadedModel,
    windows: torch.Tensor,
    batch: int,
    positions: int,
) -> None:
    """Add all windows to the sums of `formats`, against `loaded` as it is and upcast to fp32."""
    device = loaded.model.device
    upcast = copy.deepcopy(loaded.model).float()
    done = 0
    for part in torch.split(windows, batch):
        ids, next_ids = part[:, :-1].to(device), part[:, 1:].to(device)
        references = {"fp32": _forward(upcast, ids), BF16: _forward(loaded.model, ids)}
        ways = [
            (one.forward, _forward(one.loaded.model, ids), 0, ids.shape[1])
            for one in formats
            if has_forward(one.name)
        ]
        ways += [
            (one.steps, decoded_logits(one.step, ids, batch, positions), PROMPT, positions)
            for one in formats
            if one.step is not None
        ]
        for row in range(len(part)):
            against = {name: Distributions.of(logits[row]) for name, logits in references.items()}
            for tallies, logits, first, count in ways:
                found, wanted = Distributions.of(logits[row]), next_ids[row, first : first + count]
                for name, reference in against.items():
                    tally = tallies.setdefault(name, Tally(count))
                    tally.add(found, reference.part(first, count), wanted)
        done += len(part)
        sys.stderr.write(f"{done} of {len(windows)} windows\n")


def _forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits
