"""Opens the memory of all ranks of a host for the kernels of each (CUDA IPC)."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import reduce_tensor

from decodescope.analyzer.errors import first_line
from decodescope.kernels.host.exchange import Exchange, new_exchange, new_slots
from decodescope.variants.parallel.ranks import Ranks

# While ranks are built, one compiles what another has in its cache.
BUILDING_NS = 20 * 60 * 10**9
# Between steps a rank may write a window or start the profiler. One that is this late has stopped;
# where ranks watch each other's processes, they know earlier.
WAITING_NS = 60 * 10**9
_Value = TypeVar("_Value")
# Among the arguments with which torch.multiprocessing opens a tensor again.
_DEVICE = 6


@dataclass(frozen=True, slots=True)
class SharedExchange:
    """An `Exchange`, and the other ranks' memory, which stays open as long as this is held."""

    exchange: Exchange
    opened: tuple[torch.Tensor, ...]


class NotShared(Exception):
    """Kernels of the ranks cannot write to each other's memory; says why, the same on all ranks."""


def shared_exchanges(
    sizes: Sequence[int], device: torch.device, ranks: Ranks
) -> tuple[SharedExchange, ...]:
    """Memory for messages of so many words each between all ranks, which call this together.

    Raises:
        NotShared: there is none.
    """
    if (reason := _why_not_shared(device, ranks)) is not None:
        raise NotShared(reason)
    return tuple(_shared_exchange(words, device, ranks) for words in sizes)


def meet(ranks: Ranks) -> None:
    """Wait on the host until all ranks are here."""
    _from_all(None, ranks)


def _why_not_shared(device: torch.device, ranks: Ranks) -> str | None:
    if device.type != "cuda":
        return "the ranks run on CPUs"
    places = _from_all((socket.gethostname(), device.index or 0), ranks)
    if len({host for host, _ in places}) > 1:
        return "the ranks are on several hosts"
    own = places[ranks.rank][1]
    lacking = [
        other
        for _, other in places
        if other != own and not torch.cuda.can_device_access_peer(own, other)
    ]
    pairs = [(own, other) for own, others in _from_all((own, lacking), ranks) for other in others]
    return f"GPU {pairs[0][0]} cannot access GPU {pairs[0][1]}" if pairs else None


def _shared_exchange(words: int, device: torch.device, ranks: Ranks) -> SharedExchange:
    slots = new_slots(words, ranks.size, device)
    # Filled before others see it.
    torch.cuda.synchronize(device)
    handle = reduce_tensor(slots)  # type: ignore[no-untyped-call]
    tensors: list[torch.Tensor] = []
    failure = None
    try:
        for rank, other in enumerate(_from_all(handle, ranks)):
            tensors.append(slots if rank == ranks.rank else _opened(other, device))
    except RuntimeError as error:
        failure = f"rank {ranks.rank} cannot open the memory of others ({first_line(error)})"
    for reason in _from_all(failure, ranks):
        if reason is not None:
            raise NotShared(reason)
    peers = [tensor.data_ptr() for tensor in tensors]
    exchange = new_exchange(ranks.rank, slots, peers, BUILDING_NS)
    return SharedExchange(exchange, tuple(tensor for tensor in tensors if tensor is not slots))


def _opened(handle: tuple[Any, tuple[Any, ...]], device: torch.device) -> torch.Tensor:
    """The tensor of another process, for kernels of this `device`, whichever it is on."""
    rebuild, arguments = handle
    tensor: torch.Tensor = rebuild(*arguments[:_DEVICE], device.index, *arguments[_DEVICE + 1 :])
    return tensor


def _from_all(value: _Value, ranks: Ranks) -> list[_Value]:
    values: list[Any] = [None] * ranks.size
    dist.all_gather_object(values, value)
    return values
