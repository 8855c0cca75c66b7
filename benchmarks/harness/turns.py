"""The one way to measure: entrants are checked, then those that passed take turns in rounds.

A ratio is taken within a round, so that a clock that changes affects both sides.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import torch

from decodescope.variants.tuning.report import RoundSpread

# What one turn reads from the clock: one time, or those of several replays.
Timer = Callable[[], list[float]]


@dataclass(frozen=True, slots=True)
class Check:
    """The error of a result, and why the entrant is not timed; None if it passed."""

    error: float = 0.0
    failure: str | None = None

    @classmethod
    def against_float64(cls, error: float, tolerance: float) -> "Check":
        """Whether a relative error to the float64 reference is allowed."""
        return cls(error, None if error <= tolerance else failure(error, tolerance))


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to do the work.

    `check` does it once and compares the result. If that passed, `timers` returns what is read in
    each round, by name, with graphs captured. An exception is a fault if it is `ours`; another
    project refuses shapes or GPUs with errors of many types, and is left out with the reason.
    """

    name: str
    check: Callable[[], Check]
    timers: Callable[[], Mapping[str, Timer]]
    ours: bool = True


@dataclass(slots=True)
class Outcome:
    """A contestant's check, and its times in ns: by timer, a list of each round's readings."""

    check: Check
    times_ns: dict[str, list[list[float]]] = field(default_factory=dict)

    @property
    def relative_error(self) -> float | None:
        """The error; None if there is no finite one."""
        return self.check.error if self.check.error < float("inf") else None

    def spread(self, timer: str) -> RoundSpread | None:
        """Each round's median; None if it was not timed."""
        if timer not in self.times_ns:
            return None
        return RoundSpread.of([median(readings) for readings in self.times_ns[timer]])

    def readings(self, timer: str) -> list[float]:
        """The readings of all rounds; none if it was not timed."""
        return [ns for readings in self.times_ns.get(timer, []) for ns in readings]


def take_turns(
    contestants: Iterable[Contestant],
    rounds: int,
    between_rounds: Callable[[], object] = lambda: None,
) -> dict[str, Outcome]:
    """Check every contestant, then read the timers of those that passed: each round, all in turn.

    Raises:
        torch.OutOfMemoryError: also of a contestant that is not ours.
    """
    entered = {one.name: one for one in contestants}
    outcomes = {name: Outcome(_tried(one, one.check)) for name, one in entered.items()}
    timers: dict[str, Mapping[str, Timer]] = {}
    for name, outcome in outcomes.items():
        if outcome.check.failure is None:

            def prepared(name: str = name, checked: Check = outcome.check) -> Check:
                timers[name] = entered[name].timers()
                return checked

            outcome.check = _tried(entered[name], prepared)
    for name, by_timer in timers.items():
        outcomes[name].times_ns = {timer: [] for timer in by_timer}
    for _ in range(rounds):
        for name, by_timer in timers.items():
            for timer, read in by_timer.items():
                outcomes[name].times_ns[timer].append(read())
        between_rounds()
    return outcomes


def _tried(contestant: Contestant, attempt: Callable[[], Check]) -> Check:
    try:
        return attempt()
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # another project fails in any way
        if contestant.ours:
            raise
        return Check(float("inf"), f"not available: {str(problem).partition(chr(10))[0]}")


def failure(error: float, tolerance: float) -> str:
    """Why a kernel with this relative error gets no time."""
    found = f"relative error {error:.2g}" if error < float("inf") else "missing or wrong results"
    return f"{found} against the float64 reference (allowed: {tolerance:.2g}): not timed"
