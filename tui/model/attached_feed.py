"""The feed of something that runs already: windows that arrive, and the target's metrics."""

from dataclasses import replace

from decodescope.analyzer.protocol.messages import Progress
from decodescope.analyzer.reports.user_facts import NOTHING, given_model
from decodescope.tui.link.attach_events import (
    NoAnswer,
    ServerSample,
    Target,
    WindowFailed,
    WindowTaken,
)
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.model import notices
from decodescope.tui.model.attached import Attached, cost_words
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.sources import AttachSource
from decodescope.tui.model.view import Choice, SpeedSample, Window
from decodescope.tui.model.windows import Job


class AttachedFeed(Feed):
    """Its choices are the windows, and a window is shown as trace files are."""

    def receive(self, event: LinkEvent, now: float) -> None:
        before = self._state.attached or Attached()
        self.set(attached=before.after(event, now))
        match event:
            case Target(name=name, cost=cost, model=model):
                self.note("info", f"attached to {name}")
                self.note("info", f"cost of a window: {cost}")
                if before.target.name and model != before.target.model:
                    self._follow_model(model)
            case ServerSample():
                self._measure_target(event, before, now)
            case NoAnswer(reason=reason) if not before.problem:
                self.set(banner=notices.no_answer(reason))
                self.note("warning", reason)
            case Progress(stage=stage):
                self.note("info", f"window: {stage}")
            case WindowTaken():
                self._keep_window(event)
            case WindowFailed(reason=reason):
                self.alarm(reason)

    def analysed(self, job: Job, window: Window) -> None:
        """As of files; only the latest windows stay in memory, beside the one that is shown."""
        super().analysed(job, window)
        newest = len(self._state.choices) - 1
        self.windows.forget_all_but({self._state.current, newest, newest - 1})

    def not_analysed(self, job: Job, error: str) -> None:
        """As of files; of ranks that cannot be merged, the first one is shown."""
        if len(job.paths) > 1:
            self.windows.answered(job)
            self.note("warning", error)
            self.windows.expect(job.paths[:1], job.index, job.at)
        else:
            super().not_analysed(job, error)

    def ending(self) -> None:
        if self._state.attached is not None and self._state.attached.stage:
            self.set(attached=replace(self._state.attached, stage="ends the window"))

    @property
    def is_latest(self) -> bool:
        """Whether the window shown was the latest one before the last one came."""
        return self._state.current >= len(self._state.choices) - 2

    def show_latest(self, now: float) -> None:
        self.select_file(len(self._state.choices) - 1, now)

    def _follow_model(self, model: str | None) -> None:
        """Judge the windows that are read from now on by the model that the target serves now."""
        assert isinstance(self.source, AttachSource)
        given = self.source.given or NOTHING
        if given.guess:
            sizes = (given.batch, given.context, given.tensor_parallel)
            self.source = replace(self.source, given=given_model(given, model, None, *sizes))

    def _measure_target(self, sample: ServerSample, before: Attached, now: float) -> None:
        if before.problem:
            if self._state.banner == notices.no_answer(before.problem):
                self.set(banner=None)
            self.note("info", f"answers again after {now - before.answered_at:.0f} s")
        if sample.rates is None:
            return
        if sample.rates.restarted:
            self.set(banner=notices.TARGET_RESTARTED)
            self.note("warning", notices.TARGET_RESTARTED.headline)
        elif sample.rates.generated_per_s is not None:
            newest = len(self._state.choices) - 1
            self._samples.append(SpeedSample(now, sample.rates.generated_per_s, newest))

    def _keep_window(self, taken: WindowTaken) -> None:
        assert isinstance(self.source, AttachSource)
        number = len(self.source.windows) + 1
        names = ", ".join(path.name for path in taken.paths)
        time = self.clock.local().strftime("%H:%M:%S")
        about = " · ".join(filter(None, (cost_words(taken.observer), time, names)))
        choice = Choice(f"window-{number}", about)
        self.source = replace(self.source, windows=(*self.source.windows, taken.paths))
        self.set(choices=(*self._state.choices, choice))
        self.note("info", f"{choice.name}: {about}, in {taken.paths[0].parent}")
