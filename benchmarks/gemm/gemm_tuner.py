"""Finds the fastest tile of a GEMM: candidates are compiled together and ranked by graph replays.

A candidate runs on every copy of the weights in turn, so each launch reads them from memory.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.gemm.gemm_tiles import Candidate
from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.machine.clock import Call, DeviceClock
from decodescope.variants.machine.compile_ahead import launch_all

TUNING_LAUNCHES = 24
REPLAYS = 8
FINALISTS = 3
FINAL_ROUNDS = 5

Operations = Callable[[Candidate], Sequence[KernelOperation]]


@dataclass(frozen=True, slots=True)
class GemmTrial:
    """One candidate: the time of a launch, in the last rounds for finalists, or why it cannot
    run."""

    candidate: Candidate
    launch_ns: float | None
    refusal: str | None = None


def ranked(
    candidates: Sequence[Candidate], operations: Operations, clock: DeviceClock
) -> tuple[GemmTrial, ...]:
    """The candidates, fastest first, refused ones last.

    Each is measured once; the `FINALISTS` fastest are then measured in `FINAL_ROUNDS` rounds, in
    turn, and ranked by their medians.

    Raises:
        MissingRequirement: none can run; says why the first cannot.
    """
    refused = launch_all(candidates, lambda candidate: operations(candidate)[0].launch())
    graphs = {
        candidate: _graph(operations(candidate), clock)
        for candidate in candidates
        if candidate not in refused
    }
    if not graphs:
        raise MissingRequirement(f"no tile of a GEMM can run here: {next(iter(refused.values()))}")
    first = {candidate: _launch_ns(graph, clock) for candidate, graph in graphs.items()}
    order = sorted(first, key=first.__getitem__)
    finalists, others = order[:FINALISTS], order[FINALISTS:]
    rounds = [
        [_launch_ns(graphs[candidate], clock) for candidate in finalists]
        for _ in range(FINAL_ROUNDS)
    ]
    last = dict(zip(finalists, map(median, zip(*rounds, strict=True)), strict=True))
    trials = [GemmTrial(one, last[one]) for one in sorted(finalists, key=last.__getitem__)]
    trials += [GemmTrial(one, first[one]) for one in others]
    trials += [GemmTrial(one, None, why) for one, why in refused.items()]
    return tuple(trials)


def _graph(operations: Sequence[KernelOperation], clock: DeviceClock) -> tuple[Call, int]:
    launches = [one.launch for one in operations] * -(-TUNING_LAUNCHES // len(operations))

    def body() -> None:
        for launch in launches:
            launch()

    return clock.capture(body), len(launches)


def _launch_ns(graph: tuple[Call, int], clock: DeviceClock) -> float:
    replay, launches = graph
    return median(clock.each_ns(replay, REPLAYS)) / launches
