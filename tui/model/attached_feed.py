"""The feed of something that runs already, or of its recording: its windows and metrics."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decodescope.analyzer.protocol.attach_messages import (
    NoAnswer,
    ServerSample,
    Target,
    WindowFailed,
    WindowTaken,
)
from decodescope.analyzer.protocol.messages import Progress
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.reports.user_facts import NOTHING, given_model
from decodescope.analyzer.text.formatting import position
from decodescope.analyzer.vocabulary.words import observer_words
from decodescope.tui.link.base import LinkEvent
from decodescope.tui.model import notices
from decodescope.tui.model.attached import Attached
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.notices import Banner, Level
from decodescope.tui.model.sources import AttachSource, TakenWindow
from decodescope.tui.model.view import Choice, SpeedSample, Window
from decodescope.tui.model.windows import Job


class AttachedFeed(Feed):
    """Its choices are the windows, and a window is shown as trace files are."""

    source: AttachSource

    def receive(self, event: LinkEvent, now: float) -> None:
        before = self._state.attached or Attached()
        match event:
            case Target(name=name, cost=cost, model=model):
                self.set(attached=replace(before, target=event, answered_at=now))
                self._say("info", f"attached to {name}", now)
                self._say("info", f"cost of a window: {cost}", now)
                # A model in a recording may be a file of this machine.
                changed = before.target.name and model != before.target.model
                if changed and self.kind != "replay":
                    self._follow_model(model)
            case ServerSample():
                self.set(attached=replace(before, sample=event, answered_at=now, problem=""))
                self._measure_target(event, before, now)
            case NoAnswer(reason=reason):
                if not before.problem:
                    self.set(attached=replace(before, problem=reason))
                    self._follow_problem(reason, "", "", now)
            case Progress(stage=stage):
                self.set(attached=replace(before, stage=stage))
                self._say("info", f"window: {stage}", now)
            case WindowTaken():
                self.set(attached=replace(before, stage=""))
                self._keep_window(event, now)
            case WindowFailed(reason=reason):
                self.set(attached=replace(before, stage=""), banner=Banner("error", reason))
                self._say("error", reason, now)
            case _:
                super().receive(event, now)

    def analysed(self, job: Job, window: Window) -> None:
        """As of files; only the latest windows stay in memory, beside the one that is shown."""
        super().analysed(job, window)
        newest = len(self._state.choices) - 1
        self.windows.forget_all_but({self._state.current, newest, newest - 1})

    def not_analysed(self, job: Job, error: str) -> None:
        """As of files; of what cannot be merged, the first rank or the first server is shown."""
        if len(job.paths) == 1:
            super().not_analysed(job, error)
            return
        self.windows.answered(job)
        self._say("warning", error, job.at)
        windows = self.source.windows
        together = [
            place for place, one in enumerate(windows) if one.number == windows[job.index].number
        ]
        if windows[job.index].server or len(together) == 1:
            self.windows.expect(job.paths[:1], job.index, job.at)
            return
        self.windows.unreadable[job.index] = error
        if job.index == self._state.current:
            self.select_file(together[0], job.at)

    def ending(self) -> None:
        if self._state.attached is not None and self._state.attached.stage:
            self.set(attached=replace(self._state.attached, stage="ends the window"))

    @property
    def is_latest(self) -> bool:
        """Whether the window shown was the latest one before the last one came."""
        current, windows = self._state.current, self.source.windows
        return current < 0 or windows[current].number >= windows[-1].number - 1

    def show_latest(self, now: float) -> None:
        self.select_file(len(self._state.choices) - 1, now)

    def _jump(self, now: float, past: Sequence[tuple[int, RecordedMessage]]) -> None:
        self.source = replace(self.source, windows=())
        super()._jump(now, past)
        self.set(attached=self._state.attached or Attached())
        if self._state.choices:
            self.show_latest(now)

    def _say(self, level: Level, text: str, now: float) -> None:
        """Add a line to the log; in a replay one that a jump forgets."""
        self.note(level, text, "worker" if self.kind == "replay" else "app", at=now)

    def _follow_model(self, model: str | None) -> None:
        """Judge the windows that are read from now on by the model that the target serves now."""
        given = self.source.given or NOTHING
        if given.guess:
            sizes = (given.batch, given.context, given.tensor_parallel)
            self.source = replace(self.source, given=given_model(given, model, None, *sizes))

    def _measure_target(self, sample: ServerSample, before: Attached, now: float) -> None:
        again = f"answers again after {now - before.answered_at:.0f} s"
        self._follow_problem("", before.problem, again, now)
        figures = sample.figures
        if figures is None:
            return
        last = before.sample.figures if before.sample is not None else None
        problems = {} if last is None else {one.name: one.problem for one in last.servers}
        for server in figures.servers:
            was = problems.get(server.name, "")
            self._follow_problem(server.problem, was, f"{server.name} answers again", now)
            if server.restarted:
                self._say("warning", f"{server.name} restarted; its rates begin anew", now)
        if figures.restarted:
            self.set(banner=notices.TARGET_RESTARTED)
            self._say("warning", notices.TARGET_RESTARTED.headline, now)
        elif figures.generated_per_s is not None:
            newest = len(self._state.choices) - 1
            p50_s = figures.inter_token_p50_s
            p50_ms = None if p50_s is None else p50_s * 1e3
            sample_now = SpeedSample(now, figures.generated_per_s, newest, figures.running, p50_ms)
            self._samples.append(sample_now)

    def _follow_problem(self, problem: str, was: str, again: str, now: float) -> None:
        """Say a new `problem`; where there `was` one and is none, that it answers `again`."""
        if problem and not was:
            self.set(banner=notices.no_answer(problem))
            self._say("warning", problem, now)
        elif was and not problem:
            if self._state.banner == notices.no_answer(was):
                self.set(banner=None)
            self._say("info", again, now)

    def _keep_window(self, taken: WindowTaken, now: float) -> None:
        paths, windows = tuple(map(Path, taken.paths)), self.source.windows
        number = 1 + (windows[-1].number if windows else 0)
        replayed = self.kind == "replay"
        time = position(now * 1e9) if replayed else self.clock.local().strftime("%H:%M:%S")
        cost = observer_words(taken.observer)
        of_servers, at = list[TakenWindow](), 0
        for part in taken.servers if len(taken.servers) > 1 else ():
            if own := paths[at : at + part.count]:
                of_servers.append(TakenWindow(number, own, part.server))
            at += part.count
        new = (*of_servers, TakenWindow(number, paths))
        choices = tuple(_choice(window, cost, time) for window in new)
        self.source = replace(self.source, windows=(*windows, *new))
        self.set(choices=(*self._state.choices, *choices))
        place = "" if replayed else f", in {paths[0].parent}"
        self._say("info", f"window-{number}: {choices[-1].summary}{place}", now)


def _choice(window: TakenWindow, cost: str, time: str) -> Choice:
    """The choice of a window; its cost is that of all servers."""
    names = ", ".join(path.name for path in window.paths)
    if window.server:
        return Choice(f"window-{window.number} {window.server}", f"{time} · {names}")
    about = " · ".join(filter(None, (cost, time, names)))
    return Choice(f"window-{window.number}", about)
