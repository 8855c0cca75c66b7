"""The rotations at each position, taken from the model's own rotary module.

Most RoPE types have fixed frequencies. Two change them with the sequence length: `longrope` (long
factors once it exceeds the original one) and `dynamic` (other frequencies at every length beyond
the original one). A decode step at position p has sequence length p + 1, so row p of the table is
the module's rotation for that length. Rows of the prompt are not used: prefill rotates those keys
itself, with the frequencies of the prompt's length.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.families import families

Ropes = Mapping[str | None, RopeTable]


def rope_tables(model: Any, parts: FusedModel, positions: int) -> Ropes:
    """The tables of the model's layers, by their `FusedLayer.rope`."""
    kinds = {layer.rope for layer in parts.layers}
    tables: dict[str | None, RopeTable] = {
        kind: rope_table(model, positions, parts.device, kind) for kind in kinds if kind is not None
    }
    if None in kinds:
        cos = torch.ones(positions, parts.head_dim // 2, device=parts.device)
        tables[None] = RopeTable(cos, torch.zeros_like(cos))
    return tables


def rope_table(model: Any, positions: int, device: torch.device | str, kind: str = "") -> RopeTable:
    """cos and sin [positions, head_dim / 2] of decode steps at positions 0, 1, ..., in order, in
    layers of this `kind`.

    float32, although the model rounds them to its dtype; attention scaling is multiplied in. The
    model's rotary module does not change: it keeps the lengths that it has seen.
    """
    rotary = copy.deepcopy(model.model.rotary_emb).to(device)
    half = int(model.model.layers[0].self_attn.head_dim) // 2
    family = families()[model.config.model_type]
    cos = torch.ones(positions, half, dtype=torch.float32, device=device)
    sin = torch.zeros_like(cos)
    # A length of 1 resets a dynamic module to its original frequencies.
    first, _ = _rotation(rotary, range(1), device, kind)
    turned = first.shape[-1] // (1 if family.angles_once else 2)
    pairs = slice(0, None, 2) if family.repeats_angles else slice(turned)
    for span in _spans(rotary, positions, kind):
        rows = slice(span.start, span.stop)
        angles = _rotation(rotary, span, device, kind)
        cos[rows, :turned], sin[rows, :turned] = (table[:, pairs] for table in angles)
    return RopeTable(cos, sin, 1 if family.rotates_neighbours else turned)


def _rotation(
    rotary: Any, span: range, device: torch.device | str, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [len(span), rotated elements], each angle twice in most families, at sequence
    length `span.stop`."""
    like = torch.empty(0, dtype=torch.float32, device=device)
    positions = torch.arange(span.start, span.stop, device=device)[None]
    # `forward` itself: the copy carries the module's hooks, which trace the model's steps.
    cos, sin = rotary.forward(like, positions, *([kind] if kind else ()))
    return cos[0], sin[0]


def _spans(rotary: Any, positions: int, kind: str) -> Iterator[range]:
    """The positions in ranges whose rows are all right at the length of the range's last step."""
    rope_type, parameters = rotary.rope_type, rotary.config.rope_parameters
    if kind:
        rope_type, parameters = rope_type[kind], parameters[kind]
    if "dynamic" in rope_type:
        fixed = min(positions, int(rotary.original_max_seq_len))
        yield range(fixed)
        yield from (range(position, position + 1) for position in range(fixed, positions))
    elif rope_type == "longrope":
        original = int(parameters["original_max_position_embeddings"])
        yield range(min(positions, original))
        if positions > original:
            yield range(original, positions)
    else:
        yield range(positions)
