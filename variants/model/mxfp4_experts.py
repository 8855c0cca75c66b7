"""Experts in MXFP4, as gpt-oss' checkpoints store them, or random.

A checkpoint has `….experts.gate_up_proj_blocks` uint8 [experts, rows, columns / 32, 16] and
`…_scales` uint8 [experts, rows, columns / 32], and of `down_proj` likewise. Their order within a
block changes once, as they are read (`kernels.host.mxfp4`).
"""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.mxfp4 import BLOCK, packed_words
from decodescope.variants.model.checkpoint import StoredTensor
from decodescope.variants.model.quantized_weights import Mxfp4Experts, stacked_experts

BLOCKS, SCALES = "_blocks", "_scales"
# Of random weights: with codes of equal frequency, a standard deviation of 0.01 to 0.05.
_RANDOM_SCALES = 119, 122
# Weights of up to 5e10. `kernels.device.mxfp4_batched` reads no larger ones.
_LARGEST_SCALE = 160


def place_packed(model: nn.Module) -> None:
    """Put `Mxfp4Experts` without memory in the place of the experts' parameters of `model`."""
    for module in model.modules():
        for name in stacked_experts(module):
            weight = getattr(module, name)
            experts, columns, rows = weight.shape
            delattr(module, name)
            words = torch.empty(experts, rows, columns // 8, dtype=torch.int32, device="meta")
            scales = torch.empty(experts, rows, columns // BLOCK, dtype=torch.uint8, device="meta")
            setattr(module, name, Mxfp4Experts(words, scales, weight.dtype))


def packed_experts(model: nn.Module) -> Iterator[tuple[str, Mxfp4Experts]]:
    for name, module in model.named_modules():
        if isinstance(module, Mxfp4Experts):
            yield name, module


def drawn_packed(experts: Mxfp4Experts, generator: torch.Generator) -> Mxfp4Experts:
    """Experts of this shape on the generator's device: every code with the same probability, and
    small scales."""
    assert experts.scale is not None
    data, scale = (
        torch.empty_like(tensor, device=generator.device)
        for tensor in (experts.data, experts.scale)
    )
    data.random_(-(2**31), 2**31, generator=generator)
    scale.random_(*_RANDOM_SCALES, generator=generator)
    return Mxfp4Experts(data, scale, experts.dtype)


def require_packed(name: str, skeleton: nn.Module, tensors: Mapping[str, StoredTensor]) -> None:
    """Compare the experts of `skeleton` with a checkpoint's tensors.

    Raises:
        ModelError: blocks or scales that are missing, or of another type or shape; names the first.
    """
    for key, experts in packed_experts(skeleton):
        assert experts.scale is not None
        shape: tuple[int, ...] = tuple(experts.scale.shape)
        for end, expected in ((BLOCKS, (*shape, BLOCK // 2)), (SCALES, shape)):
            stored = tensors.get(f"{key}{end}")
            if stored is None or (stored.dtype, stored.shape) != ("U8", expected):
                found = "missing" if stored is None else f"{stored.dtype} {list(stored.shape)}"
                raise ModelError(
                    f"{name}: {key}{end} is {found} in the weights and U8 {list(expected)} by "
                    "config.json; use the files of one checkpoint"
                )


def fill_stored(
    name: str, key: str, experts: Mxfp4Experts, blocks: torch.Tensor, scales: torch.Tensor
) -> None:
    """Take the values of a checkpoint, an expert at a time.

    Raises:
        ModelError: a scale that is NaN, or so large that no model has such weights.
    """
    if int(scales.max()) > _LARGEST_SCALE:
        raise ModelError(
            f"{name}: {key}{SCALES} holds {int(scales.max())}, beyond {_LARGEST_SCALE}, which "
            "makes weights of over 1e10; download the checkpoint again"
        )
    experts.data = torch.stack([packed_words(each) for each in blocks])
    experts.scale = scales
