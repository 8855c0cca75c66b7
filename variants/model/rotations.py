"""The rotations at each position, by a model's own rotary module.

Most RoPE types have fixed frequencies. Two change them with the sequence length: `longrope` (long
factors once it exceeds the original one) and `dynamic` (other frequencies at every length beyond
the original one). A decode step at position p has sequence length p + 1.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def rotations(
    rotary: Any, positions: int, device: torch.device | str, kind: str = ""
) -> Iterator[tuple[slice, torch.Tensor, torch.Tensor]]:
    """cos and sin [positions of the slice, rotated elements] of decode steps at these positions, in
    layers of this `kind`; each angle is there twice in most families. Position 0 comes twice.

    float32, although the model rounds them to its dtype; attention scaling is multiplied in.
    `rotary` does not change: it keeps the lengths that it has seen.
    """
    rotary = copy.deepcopy(rotary).to(device)
    # A length of 1 resets a dynamic module to its original frequencies.
    for span in (range(1), *_spans(rotary, positions, kind)):
        like = torch.empty(0, dtype=torch.float32, device=device)
        ids = torch.arange(span.start, span.stop, device=device)[None]
        # `forward` itself: the copy carries the module's hooks, which trace the model's steps.
        cos, sin = rotary.forward(like, ids, *([kind] if kind else ()))
        yield slice(span.start, span.stop), cos[0], sin[0]


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


class RotationTables:
    """Rotations of the steps at `positions` positions, for a model whose frequencies change with
    the sequence length; other models keep theirs.

    Such a rotary module asks the position on the host, which torch.compile cannot capture.
    """

    def __init__(self, model: Any, positions: int) -> None:
        self._modules = [
            (rotary, _lookup(rotary, positions))
            for rotary in model.modules()
            if any("dynamic" in kind or kind == "longrope" for kind in _kinds(rotary).values())
        ]

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within it, the model looks its rotations up."""
        for rotary, forward in self._modules:
            rotary.forward = forward
        try:
            yield
        finally:
            for rotary, _ in self._modules:
                del rotary.forward


def _kinds(rotary: Any) -> dict[str, str]:
    """The RoPE type of each kind of layer that the module serves; none of another module."""
    rope_type = getattr(rotary, "rope_type", None)
    return rope_type if isinstance(rope_type, dict) else {"": rope_type} if rope_type else {}


def _lookup(rotary: Any, positions: int) -> Any:
    tables: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    for kind in _kinds(rotary):
        # A module of several kinds has frequencies of each.
        device = next(rotary.buffers()).device
        _, *spans = rotations(rotary, positions, device, kind)
        _, cos, sin = zip(*spans, strict=True)
        tables[kind] = torch.cat(cos), torch.cat(sin)

    def forward(
        x: torch.Tensor, position_ids: torch.Tensor, layer_type: str = ""
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = tables[layer_type]
        return cos[position_ids].to(x.dtype), sin[position_ids].to(x.dtype)

    return forward
