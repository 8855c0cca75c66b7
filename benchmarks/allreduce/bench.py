"""`allreduce`: our all-reduce beside NCCL's and those of PyTorch's symmetric memory, in graphs.

Every rank is a process. All measure the same in the same order, since each waits for the others;
rank 0 reports.
"""

import gc
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

from benchmarks.allreduce.report import (
    OWN,
    SCHEMA_VERSION,
    AllReduceBenchmark,
    AllReduceFigures,
    AllReduceSize,
)
from benchmarks.harness.errors import relative_error
from benchmarks.harness.turns import Check, Contestant, Outcome, Timer, take_turns
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shared_slots import meet
from decodescope.variants.parallel.sums import RankSums, rank_sums
from decodescope.variants.spec import AllReduce

SIZES = (4096, 8192, 16384, 32768, 65536, 262144, 1048576, 2097152)
ROUNDS, REPLAYS, LAUNCHES = 9, 5, 100
# Ranks on one GPU wait for their turns on it, of a millisecond or more.
_ROUNDS_IN_TURNS, _LAUNCHES_IN_TURNS = 2, 4
_TOLERANCE = 1e-6
# By name, `VariantSpec.all_reduce`.
_WAYS: dict[str, AllReduce | None] = {
    OWN: None,
    "nccl": "torch",
    "symmetric memory, one-shot": "one_shot",
    "symmetric memory, two-shot": "two_shot",
}


def run_all_reduce_bench(ranks: int, sizes: Sequence[int]) -> AllReduceBenchmark:
    """Measure messages of these sizes, with a GPU for each rank, or all on one if there are fewer.
    Needs what `require_gpu` checks."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _run_rank, (ranks, folder, tuple(sizes)), nprocs=ranks, start_method="spawn"
        )
        result = (Path(folder) / "result.json").read_bytes()
    return msgspec.json.decode(result, type=AllReduceBenchmark)


def _run_rank(rank: int, size: int, folder: str, sizes: tuple[int, ...]) -> None:
    one_gpu = torch.cuda.device_count() < size
    ranks, device = Ranks(rank, size), torch.device("cuda", 0 if one_gpu else rank)
    torch.cuda.set_device(device)
    # NVLink's multicast can disturb others on the host.
    os.environ["NCCL_NVLS_ENABLE"] = "0"
    backend = "gloo" if one_gpu else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, f"file://{folder}/store", rank=rank, world_size=size)
    ways = {OWN: _WAYS[OWN]} if one_gpu else _WAYS
    rounds = _ROUNDS_IN_TURNS if one_gpu else ROUNDS
    launches = _LAUNCHES_IN_TURNS if one_gpu else LAUNCHES
    figures = tuple(_measure(one, ways, ranks, device, rounds, launches) for one in sizes)
    if rank == 0:
        result = AllReduceBenchmark(
            schema_version=SCHEMA_VERSION,
            ranks=size,
            one_gpu=one_gpu,
            launches=launches,
            rounds=rounds,
            replays=REPLAYS,
            sizes=figures,
            environment=environment(),
        )
        (Path(folder) / "result.json").write_bytes(msgspec.json.encode(result))
    # The others' memory is in use until all are done, and graphs keep NCCL's communicator.
    gc.collect()
    meet(ranks)
    dist.destroy_process_group()


def _measure(
    message_bytes: int,
    ways: dict[str, AllReduce | None],
    ranks: Ranks,
    device: torch.device,
    rounds: int,
    launches: int,
) -> AllReduceSize:
    contestants = [
        _contestant(name, way, message_bytes // 4, ranks, device, launches)
        for name, way in ways.items()
    ]
    outcomes = take_turns(contestants, rounds)
    own = outcomes[OWN].spread("graph")

    def figures(name: str, outcome: Outcome) -> AllReduceFigures:
        times = outcome.spread("graph")
        share = None if own is None or times is None else own.over(times)
        error = outcome.relative_error
        return AllReduceFigures(name, outcome.check.failure, error, times, share)

    return AllReduceSize(message_bytes, tuple(figures(*each) for each in outcomes.items()))


def _contestant(
    name: str,
    way: AllReduce | None,
    elements: int,
    ranks: Ranks,
    device: torch.device,
    launches: int,
) -> Contestant:
    made: list[tuple[RankSums, Callable[[bool], torch.Tensor]]] = []

    def check() -> Check:
        sums = rank_sums(way, 1, elements, device, ranks)
        if way is None and sums.sums is None:
            reasons = [finding.message for finding in sums.findings] or ["the ranks run on CPUs"]
            return Check(float("inf"), f"not available: {reasons[0]}")
        made.append((sums, _call(sums)))
        messages = [_message(rank, elements, device) for rank in range(ranks.size)]
        sums.partial.copy_(messages[ranks.rank])
        expected = torch.stack(messages).double().sum(0)
        with sums.built_together():
            result = made[0][1](False)
        return Check.against_float64(relative_error(result, expected), _TOLERANCE)

    def timers() -> dict[str, Timer]:
        sums, call = made[0]
        # Sums in place stay what they are.
        sums.partial.zero_()
        clock, pdl = DeviceClock(), can_overlap(device)
        graph = clock.capture(lambda: [call(pdl and index > 0) for index in range(launches)])

        def read() -> list[float]:
            meet(ranks)
            replays_ns = clock.each_ns(graph, REPLAYS)
            sums.require_all()
            return [ns / launches for ns in replays_ns]

        return {"graph": read}

    return Contestant(name, check, timers, ours=name == OWN)


def _call(sums: RankSums) -> Callable[[bool], torch.Tensor]:
    """The timed call, given whether a launch may overlap with the one before; returns the sum."""
    if sums.sums is None:
        return lambda pdl: sums.total()
    out = torch.full_like(sums.partial, torch.nan)
    operation = AllReduceResidual(sums.partial, out, sums.sums.exchange, adds=False)

    def call(pdl: bool) -> torch.Tensor:
        operation.launch(pdl)
        return out

    return call


def _message(rank: int, elements: int, device: torch.device) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(rank)
    return torch.randn(1, elements, generator=generator, device=device)
