"""Times several ways to do the same work: each is checked first, then all take turns in rounds.

Each call's operands come from memory, as in a decode step: a CUDA graph of calls cycles through
copies of the operands that together exceed the L2 cache several times.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count
from typing import Literal

import torch

from benchmarks.claims.report import EntrantFigures, Race
from benchmarks.harness.cold_graphs import cold_timer, copies_needed, launches_per_replay
from benchmarks.harness.errors import relative_error
from benchmarks.harness.launch_clock import LaunchClock
from benchmarks.harness.turns import Check, Contestant, Outcome, Timer, take_turns
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.machine.clock import Call

Tensors = tuple[torch.Tensor, ...]
FlopsDtype = Literal["bf16", "fp16", "fp8", "fp32"]

_DEVICE, _LAUNCHED = "device", "launched"
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
        clock: LaunchClock,
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
        contestants = [
            Contestant(one.name, partial(_check, one), partial(self._timers, one, work), one.ours)
            for one in entrants
        ]
        outcomes = take_turns(contestants, rounds or self.rounds, self.between_rounds)
        return Race(size, tuple(self._figures(one, work, outcomes[one.name]) for one in entrants))

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

    def _timers(self, entrant: Entrant, work: Work) -> dict[str, Timer]:
        launched = {_LAUNCHED: lambda: [self._launched_ns(entrant, work)]}
        if not entrant.graphed:
            return launched
        calls = self.launches(work, len(entrant.calls))
        return {_DEVICE: cold_timer(self.clock, entrant.calls, calls, REPLAYS), **launched}

    def _launched_ns(self, entrant: Entrant, work: Work) -> float:
        turn = count()

        def call() -> None:
            entrant.calls[next(turn) % len(entrant.calls)]()

        return self.clock.mean_ns(call, self.launches(work, len(entrant.calls)))

    def _figures(self, entrant: Entrant, work: Work, outcome: Outcome) -> EntrantFigures:
        bound_ns = self.bound_ns(work)
        device_ns = outcome.spread(_DEVICE)
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
            launched_ns=outcome.spread(_LAUNCHED),
            share_of_bound=bound_ns / device_ns.median if known else None,  # type: ignore[operator, union-attr]
            relative_error=outcome.relative_error,
            tolerance=entrant.tolerance,
            launches=entrant.launches,
            error=outcome.check.failure,
            note=entrant.note,
        )


def _check(entrant: Entrant) -> Check:
    # First the reference: operations in place change what it is computed from.
    expected = entrant.reference()
    pairs = zip(entrant.result(), expected, strict=True)
    error = max(relative_error(*pair) for pair in pairs)
    return Check.against_float64(error, entrant.tolerance)
