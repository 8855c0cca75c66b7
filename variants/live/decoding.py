"""The running variant's generations: its steps, their recent times, and the text they write."""

import gc
from collections import deque
from collections.abc import Callable, Sequence

from decodescope.analyzer.protocol.messages import Stats
from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.variants.live.experts_tally import ExpertsTally
from decodescope.variants.live.session import TorchSession
from decodescope.variants.steps.decode_step import DecodeStep

COLLECT_NS = 1_000_000_000
# Figures are those of the steps in so much of the last time.
WINDOW_NS = 1_000_000_000
TAIL_CHARACTERS = 2000
_CONTEXT_TOKENS = 4
_MAX_PARTIAL = 3
_LOOKS = 2
_INCOMPLETE = "\ufffd"


def keep_recent(times_ns: deque[int]) -> None:
    """Leave the newest step times that fit in `WINDOW_NS`, at least one."""
    sum_ns = sum(times_ns)
    while sum_ns > WINDOW_NS and len(times_ns) > 1:
        sum_ns -= times_ns.popleft()


class Decoding:
    """Steps `step`, and starts again at the next prompt after the session's number of new tokens.

    `left` is the number of steps of this generation that are still to run. A clock that ranks share
    is asked after every step at first, then a few times in a run.
    """

    def __init__(
        self, session: TorchSession, clock_ns: Callable[[], int], shares_clock: bool = False
    ) -> None:
        self._session = session
        self._clock_ns = clock_ns
        self._shares_clock = shares_clock
        # A step costs one append; old times are dropped when figures are read.
        self._times_ns: deque[int] = deque()
        self._text = TextTail(session.decode)
        self._new_text = False
        self._generation = self._tokens = self._collect_at_ns = 0
        self._batch = 1
        self.left = 0
        self.step: DecodeStep | None = None
        self._tally: ExpertsTally | None = None

    @property
    def step_ns(self) -> int | None:
        keep_recent(self._times_ns)
        return step_times(self._times_ns).p50 if self._times_ns else None

    def begin(self, step: DecodeStep) -> None:
        """Decode with `step` from now on, from the session's first prompt."""
        self.step = step
        choices = step.expert_choices
        self._tally = None if choices is None else ExpertsTally(choices)
        self._generation = self.left = 0
        self._batch = 1
        self._times_ns.clear()
        self._text = TextTail(self._session.decode)

    def drop(self) -> None:
        """Forget the step; what it still computes is thrown away."""
        self._session.pacer.drain()
        self._session.tap.clear()
        self.step = self._tally = None

    def run_for(self, duration_ns: int) -> int:
        """Step for `duration_ns`, or until the generation ends; returns the number of steps."""
        assert self.step is not None
        if self.left == 0:
            self.next_generation()
        step, add = self.step.step, self._session.tap.add
        after_step, times_ns = self._session.pacer.after_step, self._times_ns
        deadline_ns = self._clock_ns() + duration_ns
        count = 0
        while count < self.left:
            for _ in range(min(self._batch, self.left - count)):
                add(step())
                times_ns += after_step()
                count += 1
            if self._clock_ns() >= deadline_ns:
                break
        if self._shares_clock:
            self._batch = max(1, count // _LOOKS)
        self.count(count)
        return count

    def run_one(self) -> list[int]:
        """Run one step, wait for it and return its time. The GPU was idle before it, so its time is
        not counted with the recent ones."""
        assert self.step is not None
        if self.left == 0:
            self.next_generation()
        self._session.pacer.before_first()
        self._session.tap.add(self.step.step())
        step_ns = self._session.pacer.after_step() + self._session.pacer.drain()
        self.count(1)
        self._read(self._session.tap.finish())
        return step_ns

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
        self.settle_times()
        self._read(self._session.tap.finish())

    def settle_times(self) -> None:
        self._times_ns += self._session.pacer.drain()

    def leave_out_pause(self) -> None:
        """Measure from now on; earlier steps do not count."""
        self._times_ns.clear()
        self._session.pacer.before_first()

    def give_up(self) -> None:
        """A step failed: the next one starts a generation."""
        self.left = 0
        self._new_text = True
        self._session.tap.clear()

    def stats(
        self, variant: str, seq: int, dropped: int, alone_ns: Sequence[int] = (), timed: bool = True
    ) -> Stats | None:
        """The figures of the recent steps, or of one that ran alone; None before the first. Without
        `timed` they have no rates."""
        assert self.step is not None
        if not alone_ns:
            self._read(self._session.tap.exchange())
            keep_recent(self._times_ns)
        step_ns = alone_ns or self._times_ns
        if not step_ns:
            return None
        times, position = step_times(step_ns), self.step.position
        return Stats(
            seq=seq,
            dropped=dropped,
            variant=variant,
            tokens=self._tokens,
            position=position,
            round=self._generation,
            steps=len(step_ns),
            tokens_per_s=tokens_per_s(step_ns, self._session.batch) if timed else None,
            step_p50_ns=times.p50 if timed else None,
            step_p99_ns=times.p99 if timed else None,
            bytes_per_step=self.step.weight_bytes_read + self.step.kv_bytes_read(position),
            text=self._text.text,
            balance=None if self._tally is None else self._tally.look(),
        )

    def _read(self, ids: list[int]) -> None:
        if ids and self._new_text:
            self._new_text = False
            self._text.restart()
        self._text.feed(ids)


class TextTail:
    """Decodes new ids together with a few old ones; `text` is the last `TAIL_CHARACTERS`, empty
    without `decode`.

    A tokenizer may split one UTF-8 character over up to four tokens, one a byte. They decode to
    U+FFFD until the last one arrives, so up to three trailing tokens wait for the next call. A
    character that stays broken is kept as U+FFFD.
    """

    def __init__(self, decode: Callable[[list[int]], str] | None) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._pending: list[int] = []
        self.text = ""

    def restart(self) -> None:
        self._context.clear()
        self._pending.clear()
        self.text = ""

    def feed(self, ids: list[int]) -> None:
        if self._decode is None or not ids:
            return
        self._pending += ids
        known = len(self._decode(self._context)) if self._context else 0
        count = len(self._pending)
        # As many tokens as end with a whole character; all of them if the character stays broken.
        for whole in (*range(count, max(-1, count - _MAX_PARTIAL - 1), -1), count):
            text = self._decode(self._context + self._pending[:whole]) if whole else ""
            if not text.endswith(_INCOMPLETE):
                break
        if whole:
            self.text = (self.text + text[known:])[-TAIL_CHARACTERS:]
            self._context = (self._context + self._pending[:whole])[-_CONTEXT_TOKENS:]
            del self._pending[:whole]
