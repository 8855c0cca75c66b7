"""The comparisons of page 7: variants measured in another process, or files compared."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from textual.app import App

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.comparing.saved import may_be_saved, read_saved
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.protocol.messages import Hello, WorkerConfig, with_settings
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.report import Report
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.model.candidates import chosen_names
from decodescope.tui.model.comparing import MOST_ROUNDS, ComparisonState
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.sources import LiveSource, TraceSource
from decodescope.tui.model.view import AppClock, View
from decodescope.tui.panels.messages import AskComparison


class Comparisons:
    """One comparison at a time. `state` is what panels show of it; `changed` is called after each
    change. While variants are measured, the live worker is paused."""

    def __init__(
        self,
        app: App[None],
        clock: AppClock,
        changed: Callable[[], None],
        link: ComparisonLink | None = None,
    ) -> None:
        """Tests pass a `link`."""
        self.state = ComparisonState()
        self._app = app
        self._clock = clock
        self._link = link
        self._changed = changed
        self._reading = False
        self._held: Feed | None = None

    async def obey(self, asked: AskComparison, view: View, feed: Feed) -> None:
        state = self.state
        match asked.do:
            case "start":
                await self._start(view, feed)
            case "cancel" if state.phase == "running":
                self._set(replace(state, phase="cancelling"))
                self._app.run_worker(self._cancel(), name="cancel")
            case "cancel":
                self._say("Nothing is measured.")
            case "toggle" if not state.busy:
                self._set(replace(state, toggled=state.toggled ^ {asked.name}))
            case "rounds" if not state.busy:
                rounds = min(max(state.rounds + asked.by, 1), MOST_ROUNDS)
                self._set(replace(state, rounds=rounds))
            case "toggle" | "rounds":
                self._say("The comparison is running. Press x to cancel it first.")
            case "side":
                self._set(replace(state, side=asked.name))
            case "file":
                self._name_file(view, feed)
            case "end_worker":
                await self._end_worker(feed)

    def _name_file(self, view: View, feed: Feed) -> None:
        """Compare what `view` of `feed` shows with a trace that the user names, or show the
        comparison in it. What was given beside the shown file counts for both, as in
        `decodescope diff`."""
        from decodescope.tui.screens.other_file import OtherFileScreen

        report = view.window.report if view.window is not None else None
        given_facts = feed.source.given

        def chosen(path: Path | None) -> None:
            if path is not None:
                self._read(partial(_compared_with, path, report, given_facts))

        self._app.push_screen(OtherFileScreen(), chosen)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _start(self, view: View, feed: Feed) -> None:
        names = chosen_names(view)
        if self.state.busy:
            self._say("The comparison is running already. x cancels it.")
        elif isinstance(feed.source, TraceSource):
            # The merged ranks after the files are no candidate.
            files = zip(view.choices, feed.source.paths, strict=False)
            paths = [path for choice, path in files if choice.name in names]
            if len(paths) == 2:
                self._read(partial(_compared_files, paths, feed.source.given))
            else:
                self._say("Choose two files with enter, or press d to name another one.")
        elif view.kind != "live" or view.hello is None:
            self._say("Variants are measured in a live run. d compares with another file.")
        elif len(names) < 2:
            self._say("Choose at least two variants with enter.")
        else:
            trusted = isinstance(feed.source, LiveSource) and feed.source.trust_remote_code
            config = _config(view.hello, names, self.state.rounds, trusted)
            await self._measure(config, feed)

    async def _measure(self, config: ComparisonConfig, feed: Feed) -> None:
        link = self._link = self._link or ComparisonLink()
        await feed.hold()
        waits = feed.view().died is None and feed.view().state not in ("ended", "failed")
        error = ""
        try:
            await link.start(config)
        except DecodescopeError as problem:
            error = str(problem)
        # Only then, so that the last events of an earlier one do not count for this one.
        self._held = feed
        begun = self.state.begun(config, self._clock.monotonic())
        self._set(replace(begun, worker_paused=waits))
        if error:
            self._set(self.state.failed(error))
            await self._release()
        if not self._reading:
            self._reading = True
            self._app.run_worker(self._receive(link), name="link")

    async def _receive(self, link: ComparisonLink) -> None:
        while (event := await link.receive()) is not None:
            self._set(self.state.received(event, self._clock.monotonic()))
            await self._release()

    async def _cancel(self) -> None:
        if self._link is not None:
            await self._link.end()
        if self.state.phase == "cancelling":
            self._set(replace(self.state, phase="cancelled", progress=None))
        await self._release()

    async def _release(self) -> None:
        """Let the live worker go on once nothing is measured."""
        feed = self._held
        if feed is not None and not self.state.busy:
            self._held = None
            self._set(replace(self.state, worker_paused=False))
            await feed.release()

    async def _end_worker(self, feed: Feed) -> None:
        if feed.kind != "live" or feed.link is None or self.state.busy:
            self._say("There is no worker to end." if not self.state.busy else "It is paused.")
            return
        feed.ended_by_user()
        self._changed()
        await feed.link.end()

    def _read(self, make: Callable[[], tuple[Comparison | Diff, str]]) -> None:
        if self.state.busy:
            self._say("A comparison is running. x cancels it.")
            return
        self._set(replace(self.state, phase="reading", error=""))
        self._app.run_worker(self._made(make), name="compare")

    async def _made(self, make: Callable[[], tuple[Comparison | Diff, str]]) -> None:
        try:
            result, origin = await asyncio.to_thread(make)
        except (DecodescopeError, OSError) as error:
            self._set(self.state.failed(str(error)))
        except Exception as error:
            text = f"the comparison failed ({type(error).__name__}: {error})"
            self._set(self.state.failed(text))
        else:
            self._set(replace(self.state, phase="done", result=result, origin=origin, side=""))

    def _set(self, state: ComparisonState) -> None:
        self.state = state
        self._changed()

    def _say(self, text: str) -> None:
        self._app.notify(text, severity="warning")


def _config(
    hello: Hello, variants: tuple[str, ...], rounds: int, trusted: bool
) -> ComparisonConfig:
    """The workload of the live run."""
    config = WorkerConfig(
        variant=variants[0],
        batch=hello.batch,
        tokens=hello.tokens,
        model=hello.model,
        context=hello.context,
        dtype=hello.dtype,
        device=hello.device,
        sampling=hello.sampling,
        trust_remote_code=trusted,
    )
    if hello.settings is not None:
        config = with_settings(config, hello.settings)
    return ComparisonConfig(config, variants, rounds)


def _compared_with(
    path: Path, report: Report | None, given_facts: Given | None
) -> tuple[Comparison | Diff, str]:
    """The comparison saved in `path`, or the diff from `report` to the trace in it.

    Raises:
        DecodescopeError, OSError: it cannot be read, or there is nothing to compare it with.
    """
    if may_be_saved(path):
        return read_saved(path.read_bytes(), str(path)), str(path)
    if report is None:
        raise InputError(f"{path}: there is no window to compare it with; wait for one")
    other = _report(path, given_facts)
    return diff_reports(report, other), "A is what was shown, B is the file"


def _compared_files(
    paths: Iterable[Path], given_facts: Given | None
) -> tuple[Comparison | Diff, str]:
    base, other = (_report(path, given_facts) for path in paths)
    return diff_reports(base, other), "two files"


def _report(path: Path, given_facts: Given | None) -> Report:
    from decodescope.analyzer import analyze, load

    return analyze(load(path), given_facts or Given()).report
