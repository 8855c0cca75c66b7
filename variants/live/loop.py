"""The worker's loop: steps the model, and between steps publishes figures and obeys the app.

Everything but the steps themselves happens every `POLL_NS` or less often. Session, channel and
clock are arguments, so that tests run the loop without a model.
"""

import gc
import traceback
from collections.abc import Callable, Sequence
from time import perf_counter_ns

from decodescope.analyzer.errors import DecodescopeError, InputError, known_error
from decodescope.analyzer.protocol.messages import (
    AppMessage,
    CaptureTrace,
    ChangeSettings,
    Failure,
    Log,
    Pause,
    Progress,
    Quit,
    Resume,
    Settings,
    State,
    StepOnce,
    SwitchVariant,
    TraceReady,
    WorkerState,
)
from decodescope.variants.live.channel import Channel
from decodescope.variants.live.decoding import Decoding
from decodescope.variants.live.lockstep import RankChannel
from decodescope.variants.live.session import TorchSession
from decodescope.variants.live.windows import WindowFiles, WindowSchedule
from decodescope.variants.measuring.window import window_plan
from decodescope.variants.parallel.exchange import gather_windows
from decodescope.variants.parallel.ranks import ALONE, Ranks

POLL_NS = 20_000_000
PUBLISH_NS = 100_000_000


class LiveLoop:
    """Runs one variant at a time until the app says `Quit`."""

    def __init__(
        self,
        session: TorchSession,
        channel: Channel | RankChannel,
        windows: WindowFiles,
        clock_ns: Callable[[], int] = perf_counter_ns,
        ranks: Ranks = ALONE,
    ) -> None:
        self._session = session
        self._channel = channel
        self._files = windows
        self._clock_ns = clock_ns
        self._ranks = ranks
        self._schedule = WindowSchedule()
        self._decoding = Decoding(session, clock_ns, shares_clock=not ranks.alone)
        self._variant = ""
        self._timed = True
        self._paused = self._quit = self._capture_requested = False
        self._single_steps = self._seq = self._publish_at_ns = 0

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
                if self._capture_requested and self._built:
                    self._guarded(self._capture_window)
                elif self._single_steps and self._built:
                    self._guarded(self._step_once)
                elif self._paused or not self._built:
                    self._obey(self._channel.wait())
                else:
                    self._guarded(self._advance)
        finally:
            gc.unfreeze()
            gc.enable()

    @property
    def _built(self) -> bool:
        return self._decoding.step is not None

    def _advance(self) -> None:
        self._schedule.stepped(self._decoding.run_for(POLL_NS))
        now_ns = self._clock_ns()
        if now_ns >= self._publish_at_ns:
            self._publish()
            self._publish_at_ns = now_ns + PUBLISH_NS
        if self._timed and self._schedule.due(now_ns):
            self._capture_window()
        self._obey(self._channel.receive())

    def _step_once(self) -> None:
        self._single_steps -= 1
        self._publish(self._decoding.run_one())
        self._obey(self._channel.receive())

    def _publish(self, alone_ns: Sequence[int] = ()) -> None:
        dropped = self._channel.dropped
        stats = self._decoding.stats(
            self._variant, self._seq + 1, dropped, alone_ns, timed=self._timed
        )
        if stats is not None:
            self._seq += 1
            self._channel.send_stats(stats)

    def _capture_window(self) -> None:
        requested, self._capture_requested = self._capture_requested, False
        if requested:
            self._announce("capturing")
        if self._decoding.left < window_plan(self._session.new_tokens).total:
            self._decoding.next_generation()
        self._decoding.settle_times()
        started_ns = self._clock_ns()
        self._schedule.captured(started_ns, started_ns)  # if it fails
        try:
            self._write_window(requested)
        except InputError as error:
            if not self._ranks.alone:
                raise  # the others wait for this rank's window
            self._decoding.left = 0
            self._channel.send(Log("warning", f"window not captured: {error}"))
        self._schedule.captured(started_ns, self._clock_ns())
        if requested:
            self._announce("paused" if self._paused else "running")
        self._session.pacer.before_first()

    def _can_capture(self) -> bool:
        """Whether the variant's steps can be profiled; a refusal is reported."""
        if not self._timed:
            text = f"window not captured: Triton's interpreter runs {self._variant} here"
            self._channel.send(Log("warning", text))
        return self._timed

    def _write_window(self, requested: bool) -> None:
        step = self._decoding.step
        assert step is not None
        plan, path = window_plan(self._decoding.left), self._files.next_path()
        info = self._session.capture(self._variant, step, plan, self._decoding.step_ns, path)
        self._decoding.count(plan.total)
        paths = gather_windows(path, self._ranks)
        self._files.written(paths)
        if paths:
            first, *others = map(str, paths)
            self._channel.send(TraceReady(first, info, requested, tuple(others)))

    def _obey(self, messages: list[AppMessage]) -> None:
        """Obey the app's messages; of several switches or settings only the last counts."""
        wanted: str | None = None
        settings: Settings | None = None
        was_paused = self._paused
        for message in messages:
            match message:
                case Quit():
                    self._quit = True
                case Pause():
                    self._paused = True
                case Resume():
                    self._paused = False
                    self._single_steps = 0
                case StepOnce():
                    self._single_steps += self._paused
                case CaptureTrace():
                    self._capture_requested = self._built and self._can_capture()
                case SwitchVariant(variant):
                    wanted = variant
                case ChangeSettings(changed):
                    settings = changed
        if self._quit:
            return
        if settings is not None:
            self._change(settings, wanted or self._variant)
        elif wanted is not None and (wanted != self._variant or not self._built):
            self._switch(wanted)
        elif self._built and self._paused != was_paused:
            if self._paused:
                self._decoding.settle()
                self._publish()
            self._go_on()

    def _switch(self, variant: str) -> None:
        """Replace the current variant with `variant`; if that fails, build the old one again."""
        if refusal := self._session.refusal(variant):
            self._channel.send(Failure(str(refusal), refusal.exit_code, fatal=False))
            return
        previous = self._variant if self._built else None
        self._drop_step()
        if not self._build(variant) and (previous is None or not self._build(previous)):
            self._fail(variant)

    def _change(self, settings: Settings, variant: str) -> None:
        """Continue with other settings; what cannot run leaves everything as it was."""
        before, previous = self._session.settings, self._variant
        self._decoding.settle_times()
        self._announce("loading")
        try:
            self._session.check(settings, variant)
        except DecodescopeError as error:
            self._report("the settings stay as they were", error)
            self._go_on()
            return
        self._drop_step()
        if self._adopt(settings, variant) and self._build(variant):
            return
        if not (self._adopt(before, previous) and self._build(previous)):
            self._fail(variant)

    def _adopt(self, settings: Settings, variant: str) -> bool:
        adopted = self._attempted(
            "the settings stay as they were",
            lambda: self._session.adopt(settings, variant, self._say),
        )
        if adopted:
            self._channel.send(self._session.hello())
        return adopted

    def _drop_step(self) -> None:
        """Free the current variant's memory; the model stays loaded."""
        if self._built:
            self._decoding.drop()
            gc.unfreeze()
            self._session.release()

    def _build(self, variant: str) -> bool:
        """Build and start `variant`; a failure is reported, not raised."""
        self._channel.send(State("building", variant))
        built = self._attempted(
            f"variant {variant} cannot be built",
            lambda: self._decoding.begin(
                self._session.build(variant, lambda stage: self._say(stage, variant))
            ),
        )
        if not built:
            return False
        self._variant, self._timed = variant, not self._session.interprets(variant)
        self._paused = self._capture_requested = False
        self._single_steps = 0
        self._schedule = WindowSchedule()
        gc.collect()
        gc.freeze()
        gc.disable()
        self._announce("running")
        return True

    def _attempted(self, failure: str, action: Callable[[], None]) -> bool:
        """Whether `action` succeeded; an error of it is reported, and its memory is freed."""
        try:
            action()
        except Exception as error:  # weights, compilers and third-party variants raise anything
            self._require_all(error)
            self._report(failure, error)
        else:
            return True
        self._session.release()
        return False

    def _require_all(self, error: Exception) -> None:
        """Raise an error that only this rank may have: the others may wait for it."""
        if not self._ranks.alone and not isinstance(error, InputError):
            raise error

    def _fail(self, variant: str) -> None:
        self._variant = variant
        self._announce("failed")

    def _go_on(self) -> None:
        if not self._built:
            self._fail(self._variant)
        elif self._paused:
            self._announce("paused")
        else:
            self._decoding.leave_out_pause()
            self._announce("running")

    def _guarded(self, action: Callable[[], None]) -> None:
        """Run `action`; an error the user can fix pauses the loop, any other is raised."""
        try:
            action()
        except Exception as error:
            known = self._session.explain(error)
            if known is None or not self._ranks.alone:
                raise
            self._report(f"variant {self._variant} stopped", known)
        else:
            return
        # Only now, because the error's traceback holds the tensors of the failed step.
        self._decoding.give_up()
        self._paused, self._single_steps = True, 0
        self._session.release()
        self._go_on()

    def _report(self, outcome: str, error: Exception) -> None:
        if not isinstance(error, DecodescopeError):
            traceback.print_exception(error)
        known = self._session.explain(error) or known_error(error)
        self._channel.send(Failure(f"{outcome}: {known}", known.exit_code, fatal=False))

    def _say(self, stage: str, detail: str = "") -> None:
        self._channel.send(Progress(stage, detail))

    def _announce(self, state: WorkerState) -> None:
        self._channel.send(State(state, self._variant))
