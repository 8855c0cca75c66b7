"""Opens the memory of all ranks of a host for the kernels of each (CUDA IPC)."""

import socket
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import reduce_tensor

from decodescope.kernels.host.exchange import Exchange, new_exchange, new_slots
from decodescope.variants.parallel.ranks import Ranks

# While ranks are built, one compiles what another has in its cache.
BUILDING_NS = 20 * 60 * 10**9
# A rank that is this late has stopped.
WAITING_NS = 20 * 10**9
_Value = TypeVar("_Value")
# Among the arguments with which torch.multiprocessing opens a tensor again.
_DEVICE = 6


@dataclass(frozen=True, slots=True)
class SharedExchange:
    """An `Exchange`, and the other ranks' memory, which stays open as long as this is held."""

    exchange: Exchange
    opened: tuple[torch.Tensor, ...]


def why_not_shared(device: torch.device, ranks: Ranks) -> str | None:
    """Why the ranks' kernels cannot write to each other's memory; None if they can. The same on
    all ranks."""
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


def shared_exchange(words: int, device: torch.device, ranks: Ranks) -> SharedExchange:
    """Memory for messages of so many words between all ranks, which call this together."""
    slots = new_slots(words, ranks.size, device)
    # Filled before others see it.
    torch.cuda.synchronize(device)
    handle = reduce_tensor(slots)  # type: ignore[no-untyped-call]
    handles = _from_all(handle, ranks)
    tensors = [
        slots if rank == ranks.rank else _opened(handle, device)
        for rank, handle in enumerate(handles)
    ]
    peers = [tensor.data_ptr() for tensor in tensors]
    exchange = new_exchange(ranks.rank, slots, peers, BUILDING_NS)
    opened = tuple(tensor for tensor in tensors if tensor is not slots)
    return SharedExchange(exchange, opened)


def meet(ranks: Ranks) -> None:
    """Wait on the host until all ranks are here."""
    _from_all(None, ranks)


def _opened(handle: tuple[Any, tuple[Any, ...]], device: torch.device) -> torch.Tensor:
    """The tensor of another process, for kernels of this `device`, whichever it is on."""
    rebuild, arguments = handle
    tensor: torch.Tensor = rebuild(*arguments[:_DEVICE], device.index, *arguments[_DEVICE + 1 :])
    return tensor


def _from_all(value: _Value, ranks: Ranks) -> list[_Value]:
    values: list[Any] = [None] * ranks.size
    dist.all_gather_object(values, value)
    return values
