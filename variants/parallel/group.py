"""The group of ranks that a process belongs to: how they meet, and what they must have in common.

The environment names the place of a process, as torchrun and our launcher set it. Ranks meet at the
store of the one that started them; what rank 0 was asked for is what all of them do.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import combinations
from typing import Any, TypeVar, cast

import msgspec
import torch
import torch.distributed as dist
from msgspec import Struct
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

import decodescope
from decodescope.analyzer.errors import InputError, MissingRequirement, first_line
from decodescope.analyzer.machine.provenance import package_version
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.machine.child_process import die_with_parent
from decodescope.variants.machine.environment import SHARED_GPU, choose_device, device_name
from decodescope.variants.parallel.place import Place, RankProcess, place_of, this_process
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.watch import SILENT_S, Watch

Request = TypeVar("Request")
# Ranks start together, but may read torch from a slow disk.
MEET_S = 23.0
# Of one collective: what a rank may take longer than another, which loads and compiles as well.
_COLLECTIVE_TIMEOUT = timedelta(minutes=20)


class Versions(Struct, frozen=True):
    """The versions that all ranks must share."""

    decodescope: str
    torch: str | None
    transformers: str | None


class _Joining(Struct, frozen=True):
    versions: Versions
    process: RankProcess


def these_versions() -> Versions:
    return Versions(
        decodescope.__version__, package_version("torch"), package_version("transformers")
    )


class Group:
    """The ranks that have met. `shared` gives all of them what rank 0 was asked for, `join` makes
    them torch.distributed's group."""

    def __init__(self, place: Place, meet_s: float, silent_s: float) -> None:
        self._place = place
        self._meet_s = meet_s
        self._store = self._connected(place.opens_store and not place.ranks.rank)
        self.watch = Watch(self._connected(False), place.ranks, silent_s, place.opens_store)

    @property
    def ranks(self) -> Ranks:
        return self._place.ranks

    def meet(self, versions: Versions) -> None:
        """Wait for the others, and watch them from then on.

        Raises:
            MissingRequirement: a rank is missing, or has other versions.
        """
        joined = self._exchanged("joined", _Joining(versions, this_process()), _Joining)
        self.watch.start([each.process for each in joined])
        for rank, each in enumerate(joined):
            if each.versions != joined[0].versions:
                raise MissingRequirement(_unlike(rank, each.versions, joined[0].versions))

    def shared(self, ask: Callable[[], Request], kind: Any) -> Request:
        """The request that rank 0 was given: the result of `ask` there, a `kind`, for all ranks."""
        if not self.ranks.rank:
            request = ask()
            self._store.set("request", msgspec.json.encode(request).decode())
            return request
        self._store.wait(["request"], _COLLECTIVE_TIMEOUT)
        request = msgspec.json.decode(self._store.get("request"), type=kind)
        return cast("Request", request)

    def join(self, config: WorkerConfig) -> Ranks:
        """Make the ranks torch.distributed's default group, each on its GPU.

        On one GPU, NCCL takes one rank only; there, and on CPUs, gloo moves all data.

        Raises:
            InputError: another number of ranks than `config.tp`.
            MissingRequirement: fewer GPUs than ranks, GPUs of several kinds, or no NCCL.
        """
        require_size(config, self.ranks.size)
        device = choose_device(config.device)
        shared = config.device == SHARED_GPU
        if device == "cuda":
            # At these sizes NVLink's multicast is no faster, and others on the host may need it.
            os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
            require_gpus(self._place, torch.cuda.device_count(), shared)
            torch.cuda.set_device(0 if shared else self._place.local_rank)
            if not (self.ranks.rank or shared):
                peers = torch.cuda.can_device_access_peer
                sys.stderr.write(said_of_peers(self._place.local_size, peers))
        names = self._exchanged("device", device_name(device), str)
        for rank, name in enumerate(names):
            if device == "cuda" and name != names[0]:
                raise MissingRequirement(
                    f"rank {rank} has a {name}, rank 0 a {names[0]}: ranks need GPUs of one kind; "
                    "choose them with CUDA_VISIBLE_DEVICES"
                )
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if device == "cuda" and not shared else "gloo",
            store=PrefixStore("group", self._store),
            rank=self.ranks.rank,
            world_size=self.ranks.size,
            timeout=_COLLECTIVE_TIMEOUT,
        )
        return self.ranks

    def leave(self) -> None:
        self.watch.leave()
        if dist.is_initialized():
            end_collectives()

    def _connected(self, opens: bool) -> TCPStore:
        host, port = self._place.address
        try:
            return TCPStore(
                host,
                port,
                self.ranks.size,
                is_master=opens,
                timeout=timedelta(seconds=self._meet_s),
                wait_for_workers=False,
            )
        except RuntimeError as error:
            if opens:
                reason = "the port is taken" if "EADDRINUSE" in str(error) else first_line(error)
                raise MissingRequirement(
                    f"rank 0 cannot open port {port} on {socket.gethostname()}: {reason}; choose "
                    "another with --master-port of torchrun, or MASTER_PORT"
                ) from error
            raise MissingRequirement(
                f"rank {self.ranks.rank} finds no store at {host}:{port} within {self._meet_s:.0f} "
                "s: rank 0 has not started, or its host is out of reach"
            ) from error

    def _exchanged(self, topic: str, value: Request, kind: type[Request]) -> list[Request]:
        """The value of each rank, in their order.

        Raises:
            MissingRequirement: a rank has sent none in time.
        """
        keys = [f"{topic}/{rank}" for rank in range(self.ranks.size)]
        self._store.set(keys[self.ranks.rank], msgspec.json.encode(value).decode())
        try:
            self._store.wait(keys, timedelta(seconds=self._meet_s))
        except RuntimeError as error:
            missing = [str(rank) for rank, key in enumerate(keys) if not self._store.check([key])]
            raise MissingRequirement(
                f"rank {', '.join(missing)} of {self.ranks.size} has not joined within "
                f"{self._meet_s:.0f} s; start all {self.ranks.size} ranks, each with its own RANK"
            ) from error
        return [msgspec.json.decode(self._store.get(key), type=kind) for key in keys]


@contextmanager
def group_of_this_process(meet_s: float = MEET_S, silent_s: float = SILENT_S) -> Iterator[Group]:
    """The group that this process was started into. An error inside the block ends all ranks: only
    one of them reports it, rank 0 by raising it. Ranks meet within `meet_s`, and none may be silent
    for `silent_s`."""
    die_with_parent()
    group = Group(place_of(os.environ), meet_s, silent_s)
    try:
        group.meet(these_versions())
        yield group
    except Exception as error:
        group.watch.end_for(error)
        raise
    group.leave()


def end_collectives() -> None:
    """Destroy torch.distributed's default group. NCCL waits there for CUDA graphs that have its
    kernels, so compiled code and unreachable objects let go of theirs before."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    dist.destroy_process_group()


def require_size(config: WorkerConfig, size: int) -> None:
    if config.tp != size:
        raise InputError(f"--tp {config.tp}, but {size} ranks were started; give both one number")


def require_gpus(place: Place, gpus: int, shared: bool) -> None:
    if not shared and place.local_size > gpus:
        raise MissingRequirement(
            f"{place.local_size} ranks on {socket.gethostname()}, but it has {gpus} "
            f"GPU{'s' * (gpus != 1)}; lower --tp, or put all ranks on the first GPU with --device "
            f"{SHARED_GPU}"
        )


def said_of_peers(gpus: int, can_access: Callable[[int, int], bool]) -> str:
    """A line about GPUs that cannot read each other's memory; "" if all can."""
    apart = [pair for pair in combinations(range(gpus), 2) if not can_access(*pair)]
    if not apart:
        return ""
    first, second = apart[0]
    others = f" and {len(apart) - 1} more pairs" if len(apart) > 1 else ""
    return (
        f"GPUs {first} and {second}{others} have no access to each other's memory: NCCL goes "
        "through that of the host, which takes longer\n"
    )


def _unlike(rank: int, versions: Versions, first: Versions) -> str:
    own, others = (msgspec.structs.asdict(each) for each in (versions, first))
    unlike = [name for name in own if own[name] != others[name]]
    told = ", ".join(f"{name} {own[name]}, rank 0 {others[name]}" for name in unlike)
    return f"rank {rank} has {told}: all ranks need the same versions"
