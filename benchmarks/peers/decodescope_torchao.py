"""A peer as a variant: torchao's FP8 weights under torch.compile, beside which `compare` runs ours.

With this folder on PYTHONPATH, decodescope finds `torchao-fp8` as it finds those of any package.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.step_bytes import weight_bytes_read
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import Variant
from decodescope.variants.steps.compiled.step import build_compiled
from decodescope.variants.steps.step import DecodeStep


def build(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    """`compiled` on a copy of the model whose linear layers hold E4M3 weights with a scale a row.

    The copy leaves the model's own weights to the variants that are scored after it. Inductor
    multiplies with the stored weights only where it may search its kernels' tiles; otherwise it
    first writes every matrix to memory in bf16 (`decomposition.mm` in torch/_inductor). So the
    search is on, as in gpt-fast, for the rest of the process. torchao's own settings also search
    along every diagonal, which they do not need for this.
    """
    from torch._inductor import config as inductor_settings
    from torchao.quantization import (  # type: ignore[import-not-found]
        Float8WeightOnlyConfig,
        quantize_,
    )

    inductor_settings.coordinate_descent_tuning = True
    model = deepcopy(loaded.model)
    quantize_(model, Float8WeightOnlyConfig(set_inductor_config=False))
    step = build_compiled(replace(loaded, model=model), workload, device)
    step.weight_bytes_read = stored_bytes(model, workload.batch)
    return step


def stored_bytes(model: Any, batch: int) -> int:
    """Bytes of weights that a step reads, where torchao's tensors state the dtype that they stand
    for instead of the one that they store."""
    parameters: list[torch.Tensor] = list(model.parameters())
    stated = sum(parameter.nbytes for parameter in parameters)
    stored = sum(part.nbytes for parameter in parameters for part in _parts(parameter))
    return weight_bytes_read(model, batch) - stated + stored


def _parts(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a tensor subclass is made of; of any other tensor, itself."""
    if not hasattr(parameter, "__tensor_flatten__"):
        yield parameter
        return
    names, _ = parameter.__tensor_flatten__()
    for name in names:
        yield getattr(parameter, name)


def check(name: str, config: Mapping[str, object], workload: DecodeWorkload, device: str) -> None:
    """Refuse to run without torchao."""
    if find_spec("torchao") is None:
        raise MissingRequirement(
            "variant torchao-fp8: torchao is not installed; install it with: pip install torchao"
        )


VARIANT = Variant(
    "torchao-fp8",
    "transformers with StaticCache, torchao's FP8 weights and torch.compile",
    True,
    build,
    check,
)
