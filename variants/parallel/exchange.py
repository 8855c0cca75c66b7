"""What ranks tell each other of themselves, outside of the model's computations."""

from typing import TypeVar

import torch
import torch.distributed as dist

from decodescope.variants.parallel.ranks import Ranks

Value = TypeVar("Value")
_HOST = torch.device("cpu")


def from_rank_0(value: Value, ranks: Ranks) -> Value:
    """The value that rank 0 has, on all ranks; it decides where times or measurements differ."""
    if ranks.alone:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0, device=_HOST)
    return values[0]


def to_rank_0(value: Value, ranks: Ranks) -> list[Value]:
    """The values of all ranks in their order, on rank 0; empty on the others."""
    if ranks.alone:
        return [value]
    values: list[Value | None] | None = None if ranks.rank else [None] * ranks.size
    dist.gather_object(value, values)
    return values or []  # type: ignore[return-value]
