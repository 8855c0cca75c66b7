"""The comparisons of page 7: variants measured in another process, or files compared."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs
from textual.app import App

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig
from decodescope.analyzer.comparing.diff import diff_sides
from decodescope.analyzer.comparing.saved import may_be_saved, read_saved
from decodescope.analyzer.errors import DecodescopeError, InputError
from decodescope.analyzer.protocol.messages import Hello, WorkerConfig, with_settings
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.model.candidates import (
    comparison_candidates,
    next_side,
    opened_paths,
    sides_to_compare,
)
from decodescope.tui.model.comparing import MOST_ROUNDS, ComparisonState
from decodescope.tui.model.feed import Feed
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.sources import AttachSource, LiveSource
from decodescope.tui.model.view import View
from decodescope.tui.painter import Painter
from decodescope.tui.panels.messages import AskComparison

if TYPE_CHECKING:
    from decodescope.analyzer import Analysis
    from decodescope.analyzer.tracks.aligned_steps import AlignedSteps

Compared = tuple[Comparison | Diff, str, "AlignedSteps | None"]


class Comparisons:
    """One comparison at a time: keeps `Focus.comparison`, which panels show. While variants are
    measured, the live worker is paused."""

    def __init__(
        self,
        app: App[None],
        focus: Focus,
        painter: Painter,
        link: ComparisonLink | None = None,
    ) -> None:
        self._app, self._focus, self._painter = app, focus, painter
        self._link = link
        self._reading = False
        self._held: Feed | None = None

    async def obey(self, asked: AskComparison, view: View, feed: Feed) -> None:
        state = self.state
        match asked.do:
            case "start":
                await self._start(asked.name, view, feed)
            case "cancel" if state.phase == "running":
                self._set(replace(state, phase="cancelling"))
                self._app.run_worker(self._cancel(), name="cancel")
            case "cancel":
                self._say("Nothing is measured.")
            case "toggle" if not state.busy:
                self._toggle(asked.name, view)
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

    def compare_windows(self, feed: Feed) -> None:
        """Compare the last two windows of what the app is attached to, as A and B; of several
        servers, those of the one that is shown."""
        source, current = feed.source, feed.view().current
        windows = source.windows if isinstance(source, AttachSource) else ()
        server = windows[current].server if 0 <= current < len(windows) else ""
        last_two = [window for window in windows if window.server == server][-2:]
        if len(last_two) < 2:
            self._say("There are no two windows to compare; t takes one.")
            return
        bases, others = (tuple(map(str, window.paths)) for window in last_two)
        opened = tuple(map(str, source.paths))
        if not self.state.busy:
            sides = dict(self.state.sides)
            for path in opened:
                sides[path, *opened] = "A" if path in bases else "B" if path in others else ""
            self._set(replace(self.state, sides=sides))
        self._read(partial(_compared_files, bases, others, source.given or Given()))

    def _toggle(self, key: str, view: View) -> None:
        state, candidates = self.state, comparison_candidates(view)
        if view.hello is not None and key in [info.name for info in view.hello.variants]:
            self._set(replace(state, toggled=state.toggled ^ {key}))
        else:
            side = next_side(candidates, key)
            self._set(replace(state, sides={**state.sides, (key, *opened_paths(view)): side}))

    def _name_file(self, view: View, feed: Feed) -> None:
        """Compare what `view` shows with a trace that the user names, or show the comparison in it.
        As in `decodescope diff`, what was given beside the shown file counts for both."""
        from decodescope.tui.screens.dialogs import OtherFileScreen

        analysis, given = _shown(view, feed), feed.source.given or Given()

        def chosen(path: Path | None) -> None:
            if path is not None:
                self._read(partial(_compared_with, path, analysis, given))

        self._app.push_screen(OtherFileScreen(), chosen)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()

    async def _start(self, cursor: str, view: View, feed: Feed) -> None:
        candidates = comparison_candidates(view)
        # The first is the base.
        names = tuple(each.name for each in candidates if each.side == "x")
        bases, others = sides_to_compare(candidates, cursor)
        if self.state.busy:
            self._say("The comparison is running already. x cancels it.")
        elif view.kind == "live" and view.hello is not None and len(names) > 1:
            trusted = isinstance(feed.source, LiveSource) and feed.source.trust_remote_code
            config = _config(view.hello, names, self.state.rounds, trusted)
            await self._measure(config, feed)
        elif bases and others:
            given = feed.source.given or Given()
            self._read(partial(_compared_files, bases, others, given))
        else:
            what = "at least two variants" if view.kind == "live" else "a file for A and one for B"
            self._say(f"Choose {what} with enter, or press d to name another file.")

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
        begun = self.state.begun(config)
        self._set(replace(begun, worker_paused=waits))
        if error:
            self._set(self.state.failed(error))
            await self._release()
        if not self._reading:
            self._reading = True
            self._app.run_worker(self._receive(link), name="link")

    async def _receive(self, link: ComparisonLink) -> None:
        while (event := await link.receive()) is not None:
            self._set(self.state.received(event))
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
        self._painter.soon()
        await feed.link.end()

    def _read(self, make: Callable[[], Compared]) -> None:
        if self.state.busy:
            self._say("A comparison is running. x cancels it.")
            return
        self._set(replace(self.state, phase="reading", error=""))
        self._app.run_worker(self._made(make), name="compare")

    async def _made(self, make: Callable[[], Compared]) -> None:
        try:
            result, origin, steps = await asyncio.to_thread(make)
        except (DecodescopeError, OSError) as error:
            self._set(self.state.failed(str(error)))
        except Exception as error:
            text = f"the comparison failed ({type(error).__name__}: {error})"
            self._set(self.state.failed(text))
        else:
            done = replace(self.state, phase="done", result=result, origin=origin)
            self._set(replace(done, steps=steps, side=""))

    @property
    def state(self) -> ComparisonState:
        return self._focus.comparison

    def _set(self, state: ComparisonState) -> None:
        self._focus.comparison = state
        self._painter.soon()

    def _say(self, text: str) -> None:
        self._app.notify(text, severity="warning")


def _shown(view: View, feed: Feed) -> "Analysis | None":
    """The shown analysis, of a run with its name and its rates: its window is a file of its own."""
    window, stats = view.window and view.window.whole, view.stats
    if window is None or stats is None:
        return None if window is None else window.analysis
    source, paths = window.report.source, feed.source.paths
    path = str(paths[0]) if paths else source.path
    source = structs.replace(source, path=path, live=stats.rates)
    report = structs.replace(window.report, source=source)
    return replace(window.analysis, report=report)


def _config(
    hello: Hello, variants: tuple[str, ...], rounds: int, trusted: bool
) -> ComparisonConfig:
    names = ("batch", "tokens", "model", "context", "dtype", "device", "sampling", "tp", "ep")
    workload = {name: getattr(hello, name) for name in names}
    config = WorkerConfig(variant=variants[0], trust_remote_code=trusted, **workload)
    if hello.settings is not None:
        config = with_settings(config, hello.settings)
    return ComparisonConfig(config, variants, rounds)


def _compared_with(path: Path, shown: "Analysis | None", given: Given) -> Compared:
    """The comparison saved in `path`, or the diff to it from what is `shown`.

    Raises:
        DecodescopeError, OSError: it cannot be read, or there is nothing to compare it with.
    """
    if may_be_saved(path):
        return read_saved(path.read_bytes(), str(path)), str(path), None
    if shown is None:
        raise InputError(f"{path}: there is no window to compare it with; wait for one")
    return _diff([shown], [_analysis(path, given)], "A is what was shown, B is the file")


def _compared_files(bases: Sequence[str], others: Sequence[str], given: Given) -> Compared:
    a, b = ([_analysis(Path(path), given) for path in paths] for paths in (bases, others))
    several = len(bases) + len(others) > 2
    return _diff(a, b, f"{len(bases)} against {len(others)} files" if several else "")


def _diff(bases: "list[Analysis]", others: "list[Analysis]", origin: str) -> Compared:
    """The changes, and the steps of the traces that stand for the sides."""
    from decodescope.analyzer.tracks.aligned_steps import aligned_steps

    both = (bases, others)
    diff = diff_sides(*([analysis.report for analysis in side] for side in both))
    of = {id(analysis.report): analysis for side in both for analysis in side}
    return diff, origin, aligned_steps(of[id(diff.base)], of[id(diff.other)])


def _analysis(path: Path, given: Given) -> "Analysis":
    from decodescope.analyzer import analyze, load

    return analyze(load(path), given)
