"""Weights in FP8 or INT8 as modules of a transformers model: they take the place of nn.Linear and
nn.Embedding, and hold the very tensors that the fused kernels read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

# The element type, and whether there are scales.
Stored = tuple[torch.dtype, bool]
# Elements [rows, columns], their scales [rows] or None, and a dtype: W in that dtype.
Convert = Callable[[torch.Tensor, torch.Tensor | None, torch.dtype], torch.Tensor]


class QuantizedMatrix(nn.Module):
    """W [rows, columns]: W[r, k] = data[r, k] * scale[r], as `kernels.host.weights.WeightMatrix`.

    `data` is FP8 or INT8, `scale` float32 [rows], None where every scale is 1. They are no
    parameters: what casts or upcasts a model moves them with it, and leaves their types alone.
    """

    def __init__(self, data: torch.Tensor, scale: torch.Tensor | None) -> None:
        super().__init__()
        self.data = data
        self.scale = scale

    @property
    def stored(self) -> Stored:
        """How the elements are stored."""
        return self.data.dtype, self.scale is not None

    @property
    def tensors(self) -> Iterator[torch.Tensor]:
        """Elements and scales."""
        yield self.data
        if self.scale is not None:
            yield self.scale

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        device = fn(self.data[:0]).device
        self.data = self.data.to(device)
        self.scale = None if self.scale is None else self.scale.to(device)
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]


class QuantizedLinear(QuantizedMatrix):
    """y = x W^T + bias, with W in the dtype of x, rounded once. `bias` is [rows] in that dtype.

    Each call makes that W anew, in `rows * columns` elements of temporary memory: it serves the
    prefill, where one W multiplies a whole prompt. PyTorch makes it, or what `converting_with` has.
    """

    def __init__(
        self, data: torch.Tensor, scale: torch.Tensor | None, bias: nn.Parameter | None = None
    ) -> None:
        super().__init__(data, scale)
        self.bias = bias
        self.convert: Convert = scaled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x [..., columns] -> [..., rows]."""
        return F.linear(x, self.convert(self.data, self.scale, x.dtype), self.bias)


class QuantizedEmbedding(QuantizedMatrix):
    """W[ids] in `dtype`, that of the model."""

    def __init__(self, data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> None:
        super().__init__(data, scale)
        self.dtype = dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids [...] -> [..., columns]."""
        # Not every device can index FP8.
        rows = self.data.view(torch.int8)[ids].view(self.data.dtype)
        return scaled(rows, None if self.scale is None else self.scale[ids], self.dtype)


@contextmanager
def converting_with(convert: Convert, model: nn.Module) -> Iterator[None]:
    """Within it, the quantised linear layers of `model` make their W with `convert`."""
    linears = [one for one in model.modules() if isinstance(one, QuantizedLinear)]
    for linear in linears:
        linear.convert = convert
    try:
        yield
    finally:
        for linear in linears:
            linear.convert = scaled


def stored_formats(model: nn.Module) -> dict[str, Stored]:
    """How each quantised matrix of `model` is stored, by the name of its module."""
    return {
        name: module.stored
        for name, module in model.named_modules()
        if isinstance(module, QuantizedMatrix)
    }


def weight_tensors(module: nn.Module, recurse: bool = True) -> list[torch.Tensor]:
    """The distinct tensors of weights of `module`: parameters, quantised elements and scales."""
    found: list[torch.Tensor] = [*module.parameters(recurse)]
    for part in module.modules() if recurse else (module,):
        if isinstance(part, QuantizedMatrix):
            found += part.tensors
    return list({id(tensor): tensor for tensor in found}.values())


def scaled(data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """data * scale in `dtype`: the elements are exact in every dtype, the product is rounded once
    (PyTorch multiplies in float32)."""
    values = data.to(dtype)
    return values if scale is None else values.mul_(scale.unsqueeze(-1))
