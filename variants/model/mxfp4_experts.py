"""Experts in MXFP4, as gpt-oss' checkpoints store them, or random.

A checkpoint has `….experts.gate_up_proj_blocks` uint8 [experts, rows, columns / 32, 16] and
`…_scales` uint8 [experts, rows, columns / 32], and of `down_proj` likewise. A byte has two columns,
the lower nibble first. They are packed once, as they are read (`kernels.host.packing`).
"""

from collections.abc import Iterator

import torch
from torch import nn

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packed import e8m0_values, packed
from decodescope.kernels.host.packing import E8M0_BIAS, LARGEST_EXPONENT, packing_of
from decodescope.variants.model.grouped.checkpoint import PackedCheckpoint
from decodescope.variants.model.grouped.matrix import nibbles
from decodescope.variants.model.quantized_weights import QuantizedExperts, stacked_experts

BLOCKS, SCALES = "_blocks", "_scales"
# Of random weights: with codes of equal frequency, a standard deviation of 0.01 to 0.05.
_RANDOM_SCALES = 119, 122
# Of weights of up to 96.
_LARGEST_SCALE = E8M0_BIAS + LARGEST_EXPONENT


def place_packed(model: nn.Module) -> None:
    """Put `QuantizedExperts` without memory in the place of the experts' parameters of `model`."""
    for module in model.modules():
        for name in stacked_experts(module):
            weight = getattr(module, name)
            experts, columns, rows = weight.shape
            packing = packing_of("mxfp4", columns)
            assert packing is not None
            delattr(module, name)
            words = torch.empty(experts, rows, packing.width, dtype=torch.int32, device="meta")
            held = QuantizedExperts(words, None, weight.dtype, packing, by_inputs=True)
            setattr(module, name, held)


def packed_experts(model: nn.Module) -> Iterator[tuple[str, QuantizedExperts]]:
    for name, module in model.named_modules():
        if isinstance(module, QuantizedExperts) and module.packing is not None:
            yield name, module


def drawn_packed(experts: QuantizedExperts, generator: torch.Generator) -> QuantizedExperts:
    """Experts of this shape on the generator's device: every code with the same probability, and
    small scales."""
    packing = experts.packing
    assert packing is not None
    words = torch.zeros_like(experts.data, device=generator.device)
    words[..., : packing.words].random_(-(2**31), 2**31, generator=generator)
    scales = words.view(torch.uint8)[..., 4 * packing.words :][..., : packing.scale_bytes]
    scales.random_(*_RANDOM_SCALES, generator=generator)
    return QuantizedExperts(words, None, experts.dtype, packing, by_inputs=True)


def require_packed(checkpoint: PackedCheckpoint, skeleton: nn.Module) -> None:
    """Compare the experts of `skeleton` with a checkpoint's tensors. Raises as `require`."""
    for key, experts in packed_experts(skeleton):
        packing = experts.packing
        assert packing is not None
        shape = (*experts.data.shape[:2], packing.groups)
        for end, expected in ((BLOCKS, (*shape, packing.group // 2)), (SCALES, shape)):
            checkpoint.require(f"{key}{end}", ("U8",), expected, "quant_method mxfp4")


def fill_stored(
    name: str, key: str, experts: QuantizedExperts, blocks: torch.Tensor, scales: torch.Tensor
) -> None:
    """Take the values of a checkpoint, an expert at a time.

    Raises:
        ModelError: a scale that is NaN, or so large that no model has such weights.
    """
    if int(scales.max()) > _LARGEST_SCALE:
        raise ModelError(
            f"{name}: {key}{SCALES} holds {int(scales.max())}, beyond {_LARGEST_SCALE}, which "
            "makes weights of over 100; download the checkpoint again"
        )
    packing = experts.packing
    assert packing is not None
    experts.data = torch.empty_like(experts.data, device=blocks.device)
    for words, of_expert, exponents in zip(experts.data, blocks, scales, strict=True):
        codes = nibbles(of_expert).flatten(1)
        words.copy_(packed(codes, e8m0_values(exponents)[..., None], packing))
