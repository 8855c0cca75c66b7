"""Times several ways to do the same work: each is checked first, then all take turns in rounds.

Each call's operands come from memory, as in a decode step: a CUDA graph of calls cycles through
copies of the operands that together exceed the L2 cache several times.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from statistics import median
from typing import Literal

import torch

from benchmarks.claims.report import EntrantFigures, Race
from benchmarks.kernels.kernel_bench import copies_needed, failure, launches_per_replay
from benchmarks.kernels.operands import relative_error
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.machine.clock import Call, DeviceClock
from decodescope.variants.tuning.report import RoundSpread

Tensors = tuple[torch.Tensor, ...]
FlopsDtype = Literal["bf16", "fp16", "fp8", "fp32"]

REPLAYS = 5
# A replay of this many bytes lasts milliseconds on any GPU, much longer than its launch takes, so
# long calls need not be as many as short ones.
REPLAY_BYTES = 32 * 10**9


@dataclass(frozen=True, slots=True)
class Work:
    """What every entrant has to do: the bytes that it must read and write, and FLOPs of a dtype."""

    bytes_moved: int
    flops: int = 0
    flops_dtype: FlopsDtype = "bf16"


@dataclass(frozen=True, slots=True)
class Entrant:
    """One way to do the work. `calls[i]()` does it once on copy i of the operands, on the current
    stream.

    `result` does it on copy 0, on outputs that hold NaN before where it owns them, and returns what
    it computed; its relative error to `reference` (float64) may be `tolerance`. Large results are
    returned in parts, and `reference` yields the parts of theirs one by one. `ours`: a wrong
    result is an error of the command, not of a peer. An entrant that synchronises, or that a graph
    cannot hold for another reason, is not `graphed` and has no device time.
    """

    name: str
    what: str
    calls: Sequence[Call]
    result: Callable[[], Tensors]
    reference: Callable[[], Iterable[torch.Tensor]]
    tolerance: float
    ours: bool = False
    graphed: bool = True
    traffic_bytes: int | None = None
    launches: int | None = None
    note: str | None = None


def entrant_of(
    operations: Sequence[KernelOperation], what: str, tolerance: float, position: int = 0
) -> Entrant:
    """An operation of ours, one for each copy of the operands, as an entrant under its kernel's
    name."""
    first = operations[0]

    def result() -> Tensors:
        for out in first.outputs(position):
            out.fill_(float("nan"))
        first.launch()
        return (*first.outputs(position), *first.updated)

    return Entrant(
        name=first.kernel,
        what=what,
        calls=[one.launch() for one in operations],
        result=result,
        reference=lambda: first.reference(position),
        tolerance=tolerance,
        ours=True,
        traffic_bytes=first.bytes_moved(position),
        launches=1,
    )


class Racing:
    """Measures races on the current GPU.

    `peak_bytes_per_s` is the read peak, `flops_per_s` the datasheet's arithmetic by dtype; the
    bound of a work is null without what it needs. `between_rounds` is called between the rounds.
    """

    def __init__(
        self,
        clock: DeviceClock,
        l2_bytes: int,
        peak_bytes_per_s: float | None,
        flops_per_s: dict[str, float],
        rounds: int,
        between_rounds: Callable[[], object] = lambda: None,
    ) -> None:
        self.clock = clock
        self.l2_bytes = l2_bytes
        self.peak_bytes_per_s = peak_bytes_per_s
        self.flops_per_s = flops_per_s
        self.rounds = rounds
        self.between_rounds = between_rounds

    def copies(self, work: Work) -> int:
        """How many sets of operands keep the L2 cache from holding those of the next call."""
        return copies_needed(work.bytes_moved, self.l2_bytes)[0]

    def launches(self, work: Work, copies: int) -> int:
        """Calls of one measurement: whole cycles through the copies, as many as `kernels`
        has or as move `REPLAY_BYTES`, whichever is less."""
        cycles = -(-REPLAY_BYTES // (max(work.bytes_moved, 1) * copies))
        return min(launches_per_replay(copies), cycles * copies)

    def bound_ns(self, work: Work) -> float | None:
        """max(bytes ÷ read peak, FLOPs ÷ datasheet peak); None where a peak that counts is not
        known."""
        if self.peak_bytes_per_s is None:
            return None
        memory_ns = work.bytes_moved / self.peak_bytes_per_s * 1e9
        if not work.flops:
            return memory_ns
        flops_per_s = self.flops_per_s.get(work.flops_dtype)
        return None if flops_per_s is None else max(memory_ns, work.flops / flops_per_s * 1e9)

    def race(
        self, size: str, work: Work, entrants: Sequence[Entrant], rounds: int | None = None
    ) -> Race:
        """Check every entrant, then time those that passed: each round, all of them in turn.

        `rounds` is for a choice between candidates, of which the best is measured again.
        """
        errors = {one.name: _error(one) for one in entrants}
        running = [one for one in entrants if errors[one.name][1] is None]
        device: dict[str, list[float]] = {one.name: [] for one in running}
        launched: dict[str, list[float]] = {one.name: [] for one in running}
        graphs = {one.name: self._captured(one, work) for one in running if one.graphed}
        for _ in range(rounds or self.rounds):
            for one in running:
                if one.graphed:
                    replay, calls = graphs[one.name]
                    replays_ns = self.clock.each_ns(replay, REPLAYS)
                    device[one.name].append(median(replays_ns) / calls)
                launched[one.name].append(self._launched_ns(one, work))
            self.between_rounds()
        return Race(
            size,
            tuple(self._figures(one, work, errors[one.name], device, launched) for one in entrants),
        )

    @cached_property
    def launch_floor_ns(self) -> float:
        """The shortest time of a kernel that does next to nothing, one of many in a graph; measured
        once, so that all rows of a run have the same."""
        x = torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
        calls = launches_per_replay(1)

        def body() -> None:
            for _ in range(calls):
                x.add_(1.0)

        replays_ns = self.clock.each_ns(self.clock.capture(body), 2 * REPLAYS)
        return min(replays_ns) / calls

    def _captured(self, entrant: Entrant, work: Work) -> tuple[Call, int]:
        calls = self.launches(work, len(entrant.calls))

        def body() -> None:
            for index in range(calls):
                entrant.calls[index % len(entrant.calls)]()

        return self.clock.capture(body), calls

    def _launched_ns(self, entrant: Entrant, work: Work) -> float:
        turn = count()

        def call() -> None:
            entrant.calls[next(turn) % len(entrant.calls)]()

        return self.clock.mean_ns(call, self.launches(work, len(entrant.calls)))

    def _figures(
        self,
        entrant: Entrant,
        work: Work,
        error: tuple[float, str | None],
        device: dict[str, list[float]],
        launched: dict[str, list[float]],
    ) -> EntrantFigures:
        relative, problem = error
        timed = problem is None
        bound_ns = self.bound_ns(work)
        device_ns = RoundSpread.of(device[entrant.name]) if timed and entrant.graphed else None
        known = device_ns is not None and bound_ns is not None
        return EntrantFigures(
            name=entrant.name,
            what=entrant.what,
            ours=entrant.ours,
            bytes_moved=work.bytes_moved,
            flops=work.flops,
            traffic_bytes=entrant.traffic_bytes,
            bound_ns=bound_ns,
            device_ns=device_ns,
            launched_ns=RoundSpread.of(launched[entrant.name]) if timed else None,
            share_of_bound=bound_ns / device_ns.median if known else None,  # type: ignore[operator, union-attr]
            relative_error=relative if relative < float("inf") else None,
            tolerance=entrant.tolerance,
            launches=entrant.launches,
            error=problem,
            note=entrant.note,
        )


def _error(entrant: Entrant) -> tuple[float, str | None]:
    """The largest relative error of an entrant's results, and why it is not timed, if it is not."""
    try:
        # First the reference: operations in place change what it is computed from.
        expected = entrant.reference()
        pairs = zip(entrant.result(), expected, strict=True)
        error = max(relative_error(*pair) for pair in pairs)
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # a peer refuses shapes or GPUs with errors of many types
        if entrant.ours:
            raise
        return float("inf"), f"not available: {str(problem).partition(chr(10))[0]}"
    passed = error <= entrant.tolerance
    return error, None if passed else failure(error, entrant.tolerance)
