"""The worker's loop: steps the model, and between steps publishes figures and obeys the app.

A step costs an append, a clock reading and the pacer; everything else happens every `POLL_NS` or
less often. Session, channel and clock are arguments, so that tests run the loop without a model.
"""

import gc
import traceback
from collections.abc import Callable
from time import perf_counter_ns

from decodescope.analyzer.errors import InputError, known_error
from decodescope.analyzer.protocol import (
    AppMessage,
    CaptureTrace,
    Failure,
    Log,
    Pause,
    Progress,
    Quit,
    Resume,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
    WorkerState,
)
from decodescope.variants.live.channel import Channel
from decodescope.variants.live.figures import RecentSteps
from decodescope.variants.live.generated_text import TextTail
from decodescope.variants.live.session import TorchSession
from decodescope.variants.live.windows import WindowFiles, WindowSchedule
from decodescope.variants.measuring.window import window_plan
from decodescope.variants.steps.step import DecodeStep

POLL_NS = 20_000_000
PUBLISH_NS = 100_000_000
COLLECT_NS = 1_000_000_000


class LiveLoop:
    """Runs one variant at a time until the app says `Quit`."""

    def __init__(
        self,
        session: TorchSession,
        channel: Channel,
        windows: WindowFiles,
        clock_ns: Callable[[], int] = perf_counter_ns,
    ) -> None:
        self._session = session
        self._channel = channel
        self._files = windows
        self._clock_ns = clock_ns
        self._schedule = WindowSchedule()
        self._recent = RecentSteps(session.batch)
        self._text = TextTail(session.decode)
        self._step: DecodeStep | None = None
        self._variant = ""
        self._paused = self._quit = self._capture_requested = self._new_text = False
        self._generation = self._left = self._tokens = self._seq = 0
        self._publish_at_ns = self._collect_at_ns = 0

    def run(self, variant: str) -> None:
        """Build `variant` and run until `Quit`.

        Raises:
            DecodescopeError: `variant` is unknown or cannot run here.
            ChannelClosed: the app is gone.
            Exception: a step failed for an unexpected reason (a device error).
        """
        if refusal := self._session.refusal(variant):
            raise refusal
        try:
            self._switch(variant)
            while not self._quit:
                if self._step is not None and self._capture_requested:
                    self._guarded(self._capture_window)
                elif self._step is None or self._paused:
                    self._obey(self._channel.wait())
                else:
                    self._guarded(self._advance)
        finally:
            gc.unfreeze()
            gc.enable()

    def _advance(self) -> None:
        """Step until the next poll, then publish, capture and obey as due."""
        if self._left == 0:
            self._next_generation()
        self._step_until(self._clock_ns() + POLL_NS)
        now_ns = self._clock_ns()
        if now_ns >= self._publish_at_ns:
            self._publish()
            self._publish_at_ns = now_ns + PUBLISH_NS
        if self._schedule.due(now_ns):
            self._capture_window()
        self._obey(self._channel.receive())

    def _step_until(self, deadline_ns: int) -> None:
        assert self._step is not None
        step, add, clock_ns = self._step.step, self._session.tap.add, self._clock_ns
        after_step, times = self._session.pacer.after_step, self._recent.fresh
        count = 0
        for _ in range(self._left):
            add(step())
            times += after_step()
            count += 1
            if clock_ns() >= deadline_ns:
                break
        self._count(count)
        self._schedule.stepped(count)

    def _count(self, steps: int) -> None:
        self._left -= steps
        self._tokens += steps * self._session.batch

    def _next_generation(self) -> None:
        """Prefill the next prompt; its text replaces the old one when its first ids arrive."""
        assert self._step is not None
        self._settle()
        self._new_text = True
        now_ns = self._clock_ns()
        if now_ns >= self._collect_at_ns:
            gc.collect()
            self._collect_at_ns = now_ns + COLLECT_NS
        self._generation += 1
        self._session.tap.add(self._step.prefill(self._session.prompt(self._generation - 1)))
        self._tokens += self._session.batch
        self._left = self._session.new_tokens
        self._session.pacer.before_first()

    def _settle(self) -> None:
        """Wait for the launched steps, and read their times and ids."""
        self._recent.fresh += self._session.pacer.drain()
        self._read(self._session.tap.finish())

    def _read(self, ids: list[int]) -> None:
        if ids and self._new_text:
            self._new_text = False
            self._text.restart()
        self._text.feed(ids)

    def _publish(self) -> None:
        assert self._step is not None
        self._read(self._session.tap.exchange())
        figures = self._recent.figures()
        if figures is None:
            return
        self._seq += 1
        position = self._step.position
        self._channel.send_stats(
            Stats(
                seq=self._seq,
                dropped=self._channel.dropped,
                variant=self._variant,
                tokens=self._tokens,
                position=position,
                round=self._generation,
                steps=figures.steps,
                tokens_per_s=figures.tokens_per_s,
                step_p50_ns=figures.p50_ns,
                step_p99_ns=figures.p99_ns,
                bytes_per_step=self._step.weight_bytes_read + self._step.kv_bytes_read(position),
                text=self._text.text,
            )
        )

    def _capture_window(self) -> None:
        """Run a few steps of this generation under the profiler and announce the file."""
        assert self._step is not None
        requested, self._capture_requested = self._capture_requested, False
        if requested:
            self._announce("capturing")
        if self._left < window_plan(self._session.new_tokens).total:
            self._next_generation()
        self._recent.fresh += self._session.pacer.drain()
        started_ns = self._clock_ns()
        try:
            self._write_window(requested)
        except InputError as error:
            self._left = 0
            self._channel.send(Log("warning", f"window not captured: {error}"))
        finally:
            self._schedule.captured(started_ns, self._clock_ns())
        if requested:
            self._announce("paused" if self._paused else "running")
        self._session.pacer.before_first()

    def _write_window(self, requested: bool) -> None:
        assert self._step is not None
        plan, path = window_plan(self._left), self._files.next_path()
        figures = self._recent.figures()
        step_ns = figures.p50_ns if figures else None
        info = self._session.capture(self._variant, self._step, plan, step_ns, path)
        self._count(plan.total)
        self._files.written(path)
        self._channel.send(TraceReady(path=str(path), capture=info, requested=requested))

    def _obey(self, messages: list[AppMessage]) -> None:
        """Obey the app's messages; of several switches only the last counts."""
        wanted: str | None = None
        was_paused = self._paused
        for message in messages:
            match message:
                case Quit():
                    self._quit = True
                case Pause():
                    self._paused = True
                case Resume():
                    self._paused = False
                case CaptureTrace():
                    self._capture_requested = self._step is not None
                case SwitchVariant(variant):
                    wanted = variant
        if self._quit:
            return
        if wanted is not None and (wanted != self._variant or self._step is None):
            self._switch(wanted)
        elif self._step is not None and self._paused != was_paused:
            self._pause() if self._paused else self._resume()

    def _pause(self) -> None:
        self._settle()
        self._publish()
        self._announce("paused")

    def _resume(self) -> None:
        self._recent.clear()
        self._session.pacer.before_first()
        self._announce("running")

    def _switch(self, variant: str) -> None:
        """Replace the current variant with `variant`; if that fails, build the old one again."""
        if refusal := self._session.refusal(variant):
            self._channel.send(Failure(str(refusal), refusal.exit_code, fatal=False))
            return
        previous = None
        if self._step is not None:
            previous = self._variant
            self._drop_step()
        if not self._build(variant) and (previous is None or not self._build(previous)):
            self._variant = variant
            self._announce("failed")

    def _drop_step(self) -> None:
        """Free the current variant's memory; the model stays loaded."""
        self._session.pacer.drain()
        self._session.tap.clear()
        self._step = None
        gc.unfreeze()
        self._session.release()

    def _build(self, variant: str) -> bool:
        """Build and start `variant`; a failure is reported, not raised."""
        self._channel.send(State("building", variant))
        try:
            self._step = self._session.build(
                variant, lambda stage: self._channel.send(Progress(stage, variant))
            )
        except Exception as error:  # compilers and third-party variants raise anything
            self._report(f"variant {variant} cannot be built", error)
        if self._step is None:
            self._session.release()
            return False
        self._variant = variant
        self._paused = self._capture_requested = False
        self._generation = self._left = 0
        self._text.restart()
        self._recent.clear()
        self._schedule.variant_started()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._announce("running")
        return True

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run `action`; an error the user can fix pauses the loop, any other is raised."""
        try:
            action()
        except Exception as error:
            known = self._session.explain(error)
            if known is None:
                raise
            self._report(f"variant {self._variant} stopped", known)
            self._left = 0
            self._paused = self._new_text = True
            self._session.tap.clear()
            self._session.release()
            self._announce("paused")

    def _report(self, what: str, error: Exception) -> None:
        traceback.print_exception(error)
        known = self._session.explain(error) or known_error(error)
        self._channel.send(Failure(f"{what}: {known}", known.exit_code, fatal=False))

    def _announce(self, state: WorkerState) -> None:
        self._channel.send(State(state, self._variant))
