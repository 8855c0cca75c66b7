"""Step-time figures over the last second of unprofiled steps."""

from collections import deque
from dataclasses import dataclass

WINDOW_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class StepFigures:
    """`tokens_per_s` = batch x steps / sum of the step times; p50 and p99 by nearest rank."""

    steps: int
    tokens_per_s: float
    p50_ns: int
    p99_ns: int


class RecentSteps:
    """The newest step times that fit in `WINDOW_NS`, at least one.

    The loop appends to `fresh`, a plain list, so a step costs one append; everything else happens
    when figures are read.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._times: deque[int] = deque()
        self._sum_ns = 0
        self.fresh: list[int] = []

    def clear(self) -> None:
        """Discard all steps."""
        self._times.clear()
        self._sum_ns = 0
        self.fresh.clear()

    def figures(self) -> StepFigures | None:
        """Figures over the recent steps; None before the first."""
        self._absorb()
        steps = len(self._times)
        if not steps:
            return None
        ordered = sorted(self._times)
        return StepFigures(
            steps=steps,
            tokens_per_s=self._batch * steps * 1e9 / max(self._sum_ns, 1),
            p50_ns=ordered[(steps - 1) // 2],
            p99_ns=ordered[-(-99 * steps // 100) - 1],
        )

    def _absorb(self) -> None:
        self._times.extend(self.fresh)
        self._sum_ns += sum(self.fresh)
        self.fresh.clear()
        while self._sum_ns > WINDOW_NS and len(self._times) > 1:
            self._sum_ns -= self._times.popleft()
