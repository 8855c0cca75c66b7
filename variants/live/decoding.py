"""The running variant's generations: its steps, their recent times, and the text they write."""

import gc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from decodescope.analyzer.protocol.messages import Stats
from decodescope.variants.live.generated_text import TextTail
from decodescope.variants.live.session import TorchSession
from decodescope.variants.steps.decode_step import DecodeStep

COLLECT_NS = 1_000_000_000
# Figures are those of the steps in so much of the last time.
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

    The loop appends to `times_ns`. Older steps are dropped when figures are read, so a step costs
    one append.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.times_ns: deque[int] = deque()

    def figures(self) -> StepFigures | None:
        """Figures over the recent steps; None before the first."""
        times_ns, sum_ns = self.times_ns, sum(self.times_ns)
        while sum_ns > WINDOW_NS and len(times_ns) > 1:
            sum_ns -= times_ns.popleft()
        steps = len(times_ns)
        if not steps:
            return None
        ordered = sorted(times_ns)
        return StepFigures(
            steps=steps,
            tokens_per_s=self._batch * steps * 1e9 / max(sum_ns, 1),
            p50_ns=ordered[(steps - 1) // 2],
            p99_ns=ordered[-(-99 * steps // 100) - 1],
        )


class Decoding:
    """Steps `step`, and starts again at the next prompt after the session's number of new tokens.

    `left` is the number of steps of this generation that are still to run.
    """

    def __init__(self, session: TorchSession, clock_ns: Callable[[], int]) -> None:
        self._session = session
        self._clock_ns = clock_ns
        self._recent = RecentSteps(session.batch)
        self._text = TextTail(session.decode)
        self._new_text = False
        self._generation = self._tokens = self._collect_at_ns = 0
        self.left = 0
        self.step: DecodeStep | None = None

    @property
    def step_ns(self) -> int | None:
        """The median time of the recent steps, None before the first."""
        figures = self._recent.figures()
        return figures.p50_ns if figures else None

    def begin(self, step: DecodeStep) -> None:
        """Decode with `step` from now on, from the session's first prompt."""
        self.step = step
        self._generation = self.left = 0
        self._recent = RecentSteps(self._session.batch)
        self._text = TextTail(self._session.decode)

    def drop(self) -> None:
        """Forget the step; what it still computes is thrown away."""
        self._session.pacer.drain()
        self._session.tap.clear()
        self.step = None

    def run_for(self, duration_ns: int) -> int:
        """Step for `duration_ns`, or until the generation ends; returns how many steps that were.

        A step costs an append, a clock reading and the pacer.
        """
        assert self.step is not None
        if self.left == 0:
            self.next_generation()
        step, add, clock_ns = self.step.step, self._session.tap.add, self._clock_ns
        after_step, times_ns = self._session.pacer.after_step, self._recent.times_ns
        deadline_ns = clock_ns() + duration_ns
        count = 0
        for _ in range(self.left):
            add(step())
            times_ns += after_step()
            count += 1
            if clock_ns() >= deadline_ns:
                break
        self.count(count)
        return count

    def run_one(self) -> StepFigures:
        """Run one step and wait for it. The GPU was idle before it, so its time is not counted with
        the recent ones."""
        assert self.step is not None
        if self.left == 0:
            self.next_generation()
        alone = RecentSteps(self._session.batch)
        self._session.pacer.before_first()
        self._session.tap.add(self.step.step())
        alone.times_ns += self._session.pacer.after_step() + self._session.pacer.drain()
        self.count(1)
        self._read(self._session.tap.finish())
        figures = alone.figures()
        assert figures is not None
        return figures

    def count(self, steps: int) -> None:
        """Count `steps` steps of this generation that have run."""
        self.left -= steps
        self._tokens += steps * self._session.batch

    def next_generation(self) -> None:
        """Prefill the next prompt; its text replaces the old one when its first ids arrive."""
        assert self.step is not None
        self.settle()
        self._new_text = True
        now_ns = self._clock_ns()
        if now_ns >= self._collect_at_ns:
            gc.collect()
            self._collect_at_ns = now_ns + COLLECT_NS
        self._generation += 1
        self._session.tap.add(self.step.prefill(self._session.prompt(self._generation - 1)))
        self._tokens += self._session.batch
        self.left = self._session.new_tokens
        self._session.pacer.before_first()

    def settle(self) -> None:
        """Wait for the launched steps, and read their times and ids."""
        self.settle_times()
        self._read(self._session.tap.finish())

    def settle_times(self) -> None:
        """Wait for the launched steps, and read their times."""
        self._recent.times_ns += self._session.pacer.drain()

    def leave_out_pause(self) -> None:
        """Measure from now on; earlier steps do not count."""
        self._recent.times_ns.clear()
        self._session.pacer.before_first()

    def give_up(self) -> None:
        """A step failed: the next one starts a generation."""
        self.left = 0
        self._new_text = True
        self._session.tap.clear()

    def stats(
        self, variant: str, seq: int, dropped: int, alone: StepFigures | None = None
    ) -> Stats | None:
        """The figures of the recent steps, or of one that ran `alone`; None before the first."""
        assert self.step is not None
        if alone is None:
            self._read(self._session.tap.exchange())
        figures = alone or self._recent.figures()
        if figures is None:
            return None
        position = self.step.position
        return Stats(
            seq=seq,
            dropped=dropped,
            variant=variant,
            tokens=self._tokens,
            position=position,
            round=self._generation,
            steps=figures.steps,
            tokens_per_s=figures.tokens_per_s,
            step_p50_ns=figures.p50_ns,
            step_p99_ns=figures.p99_ns,
            bytes_per_step=self.step.weight_bytes_read + self.step.kv_bytes_read(position),
            text=self._text.text,
        )

    def _read(self, ids: list[int]) -> None:
        if ids and self._new_text:
            self._new_text = False
            self._text.restart()
        self._text.feed(ids)
