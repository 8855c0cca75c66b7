"""The rotations at each position, taken from the model's own rotary module.

A decode step at position p has sequence length p + 1, so row p of the table is the module's
rotation for that length. Rows of the prompt are not used: prefill rotates those keys itself, with
the frequencies of the prompt's length.
"""

from collections.abc import Mapping
from typing import Any

import torch

from decodescope.kernels.ops.rope import RopeTable
from decodescope.variants.model.rotations import rotations
from decodescope.variants.steps.fused.blocks import FusedModel
from decodescope.variants.steps.fused.families import families

Ropes = Mapping[str | None, RopeTable]


def rope_tables(model: Any, parts: FusedModel, positions: int) -> Ropes:
    """The tables of the model's layers, by their `FusedLayer.rope`."""
    sizes = {layer.rope: layer.head_dim for layer in parts.layers}
    tables: dict[str | None, RopeTable] = {
        kind: rope_table(model, positions, parts.device, kind) for kind in sizes if kind is not None
    }
    if None in sizes:
        cos = torch.ones(positions, sizes[None] // 2, device=parts.device)
        tables[None] = RopeTable(cos, torch.zeros_like(cos))
    return tables


def rope_table(model: Any, positions: int, device: torch.device | str, kind: str = "") -> RopeTable:
    """cos and sin [positions, head_dim / 2] of decode steps at positions 0, 1, ..., in order, in
    layers of this `kind`.

    float32, although the model rounds them to its dtype; attention scaling is multiplied in. The
    model's rotary module does not change: it keeps the lengths that it has seen.
    """
    family = families()[model.config.model_type]
    first = model.config.layer_types.index(kind) if kind else 0
    half = int(model.model.layers[first].self_attn.head_dim) // 2
    cos = torch.ones(positions, half, dtype=torch.float32, device=device)
    sin = torch.zeros_like(cos)
    for rows, *angles in rotations(model.model.rotary_emb, positions, device, kind):
        turned = angles[0].shape[-1] // (1 if family.angles_once else 2)
        pairs = slice(0, None, 2) if family.repeats_angles else slice(turned)
        cos[rows, :turned], sin[rows, :turned] = (table[:, pairs] for table in angles)
    return RopeTable(cos, sin, 1 if family.rotates_neighbours else turned)
