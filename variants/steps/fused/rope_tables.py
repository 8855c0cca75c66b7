"""The rotations at each position, taken from the model's own rotary module.

Most RoPE types have fixed frequencies. Two change them with the sequence length: `longrope` (long
factors once it exceeds the original one) and `dynamic` (other frequencies at every length beyond
the original one). A decode step at position p has sequence length p + 1, so row p of the table is
the module's rotation for that length. Rows of the prompt are not used: prefill rotates those keys
itself, with the frequencies of the prompt's length.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch

from decodescope.kernels.ops.rope import RopeTable


def rope_table(model: Any, positions: int, device: torch.device | str) -> RopeTable:
    """cos and sin [positions, head_dim / 2] of decode steps at positions 0, 1, ..., in order.

    float32, although the model rounds them to its dtype; attention scaling is multiplied in. The
    model's rotary module does not change: it keeps the lengths that it has seen.
    """
    rotary = copy.deepcopy(model.model.rotary_emb).to(device)
    half = int(model.model.layers[0].self_attn.head_dim) // 2
    cos = torch.empty(positions, half, dtype=torch.float32, device=device)
    sin = torch.empty_like(cos)
    # A length of 1 resets a dynamic module to its original frequencies.
    _rotation(rotary, range(1), device)
    for span in _spans(rotary, positions):
        rows = slice(span.start, span.stop)
        cos[rows], sin[rows] = (table[:, :half] for table in _rotation(rotary, span, device))
    return RopeTable(cos, sin)


def _rotation(
    rotary: Any, span: range, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [len(span), head_dim], both halves equal, at sequence length `span.stop`."""
    like = torch.empty(0, dtype=torch.float32, device=device)
    positions = torch.arange(span.start, span.stop, device=device)[None]
    # `forward` itself: the copy carries the module's hooks, which trace the model's steps.
    cos, sin = rotary.forward(like, positions)
    return cos[0], sin[0]


def _spans(rotary: Any, positions: int) -> Iterator[range]:
    """The positions in ranges whose rows are all right at the length of the range's last step."""
    if "dynamic" in rotary.rope_type:
        fixed = min(positions, int(rotary.original_max_seq_len))
        yield range(fixed)
        yield from (range(position, position + 1) for position in range(fixed, positions))
    elif rotary.rope_type == "longrope":
        original = int(rotary.config.rope_parameters["original_max_position_embeddings"])
        yield range(min(positions, original))
        if positions > original:
            yield range(original, positions)
    else:
        yield range(positions)
