"""The formats that `quality` scores: copies of a model, their logits, and sums over the text."""

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from benchmarks.quality.scores import Distributions, Tally
from decodescope.analyzer.errors import DecodescopeError
from decodescope.kernels.host.weights import quantized_rows
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.quantized_weights import QuantizedLinear, quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.registry import build_variant
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.decode_step import DecodeStep

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
    rounding: dict[str, Tally] = field(default_factory=dict)
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
    """Whether a forward pass of transformers can round as this format does."""
    return VariantSpec.parse(f"fused+{name}").kv_format is None


@contextmanager
def quantized_activations(model: nn.Module) -> Iterator[None]:
    """Within it, every product of `model` with quantised weights reads its activations rounded to
    E4M3 with a scale for each token, as the kernels of W8A8 do."""

    def rounded(module: nn.Module, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        (x,) = inputs
        codes, scale = quantized_rows(x.flatten(0, -2), "fp8_e4m3")
        assert scale is not None
        return (codes.float() * scale[:, None]).to(x.dtype).view_as(x)

    modules = [module for module in model.modules() if isinstance(module, QuantizedLinear)]
    hooks = [module.register_forward_pre_hook(rounded) for module in modules]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def has_rounding(name: str) -> bool:
    """Whether its weights are rounded, so that a forward pass in fp32 shows that alone."""
    return has_forward(name) and VariantSpec.parse(f"fused+{name}").narrow


def activations_as_in(one: Format) -> AbstractContextManager[None]:
    """Within it, the format's transformers model rounds activations as its kernels do."""
    fp8_x = VariantSpec.parse(f"fused+{one.name}").fp8_x
    return quantized_activations(one.loaded.model) if fp8_x else nullcontext()


def forward_logits(one: Format, ids: torch.Tensor) -> torch.Tensor:
    """Logits of transformers on the weights and activations of the format."""
    with activations_as_in(one):
        return _forward(one.loaded.model, ids)


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
    upcast = _in_float32(loaded.model)
    rounded = {
        one.name: replace(one, loaded=replace(one.loaded, model=_in_float32(one.loaded.model)))
        for one in formats
        if has_rounding(one.name)
    }
    done = 0
    for part in torch.split(windows, batch):
        ids, next_ids = part[:, :-1].to(device), part[:, 1:].to(device)
        references = {"fp32": _forward(upcast, ids), BF16: _forward(loaded.model, ids)}
        ways = [
            (one.rounding, forward_logits(rounded[one.name], ids), 0, ids.shape[1])
            for one in formats
            if one.name in rounded
        ]
        ways += [
            (one.forward, forward_logits(one, ids), 0, ids.shape[1])
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


def _in_float32(model: Any) -> Any:
    """A copy that computes in float32; what is quantised stays as it is."""
    return copy.deepcopy(model).float()


def _forward(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids, use_cache=False).logits
    return logits
