"""Finds the fastest tile of a GEMM: candidates are compiled together and ranked by graph replays.

A candidate runs on every copy of the weights in turn, so each launch reads them from memory.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import torch
from triton.compiler.errors import CompilationError
from triton.errors import TritonError

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.bench.gemm_tiles import Candidate
from decodescope.variants.machine.clock import Call, Clock

TUNING_LAUNCHES = 24
REPLAYS = 8
FINALISTS = 3
FINAL_ROUNDS = 5
COMPILERS = 16

Operations = Callable[[Candidate], Sequence[KernelOperation]]


@dataclass(frozen=True, slots=True)
class GemmTrial:
    """One candidate: the time of a launch, in the last rounds for finalists, or why it cannot
    run."""

    candidate: Candidate
    launch_ns: float | None
    refusal: str | None = None


def compile_all(candidates: Sequence[Candidate], operations: Operations) -> dict[Candidate, str]:
    """Launch each candidate once, several at a time, because each must be compiled first; returns
    why some cannot run."""

    def refusal(candidate: Candidate) -> str | None:
        try:
            _bind_thread()
            operations(candidate)[0].launch()
        except torch.OutOfMemoryError:
            raise
        except (TritonError, RuntimeError, ValueError) as error:
            # A compilation error quotes the kernel first and ends with what is wrong.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            return lines[-1 if isinstance(error, CompilationError) else 0]
        return None

    with ThreadPoolExecutor(COMPILERS) as pool:
        found = zip(candidates, pool.map(refusal, candidates), strict=True)
        return {candidate: why for candidate, why in found if why is not None}


def _bind_thread() -> None:
    """Make the GPU's context that of the thread: the driver encodes tensor maps, and unlike the
    runtime it does not choose a context by itself."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ranked(
    candidates: Sequence[Candidate], operations: Operations, clock: Clock
) -> tuple[GemmTrial, ...]:
    """The candidates, fastest first, refused ones last.

    Each is measured once; the `FINALISTS` fastest are then measured in `FINAL_ROUNDS` rounds, in
    turn, and ranked by their medians.

    Raises:
        MissingRequirement: none can run; says why the first cannot.
    """
    refused = compile_all(candidates, operations)
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


def _graph(operations: Sequence[KernelOperation], clock: Clock) -> tuple[Call, int]:
    launches = [one.launch for one in operations] * -(-TUNING_LAUNCHES // len(operations))

    def body() -> None:
        for launch in launches:
            launch()

    return clock.capture(body), len(launches)


def _launch_ns(graph: tuple[Call, int], clock: Clock) -> float:
    replay, launches = graph
    return median(clock.each_ns(replay, REPLAYS)) / launches
