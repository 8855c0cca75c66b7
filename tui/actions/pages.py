"""Actions on what is looked at: pages, selection, palette, help."""

import asyncio
from collections.abc import Iterable
from functools import partial

from textual.app import SystemCommand

from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.actions.run import RunController
from decodescope.tui.background import window_of_step
from decodescope.tui.commands import Command, offered, reachable, rekeyed
from decodescope.tui.feeds import Feeds
from decodescope.tui.model.view import COMPARISON_PAGE, LOG_PAGE, Window
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.messages import Choose, ChooseStep, Narrow, PageRequest, Sift
from decodescope.tui.panels.panel import Panel

NO_STEPS = "There are no steps to choose from."


class PageController:
    """Its actions change no run and no file."""

    def __init__(self, feeds: Feeds, runs: RunController) -> None:
        self._feeds = feeds
        self._app, self._focus, self._painter = feeds.app, feeds.focus, feeds.painter
        self._runs = runs
        self._wanted_step: tuple[Window, int] | None = None
        self._finding_step = False

    def system_commands(self) -> Iterable[SystemCommand]:
        view, screen = self._feeds.view(), self._painter.screen
        for index, choice in enumerate(view.choices):
            if choice.unavailable is None and not view.following:
                title = no_markup(f"Switch to {choice.name}")
                summary = no_markup(choice.summary)
                yield SystemCommand(title, summary, partial(self._runs.action_choose, index))
        for page in PAGES:
            text = f"Show this page ({page.key})"
            yield SystemCommand(f"Page: {page.label}", text, partial(self.action_page, page.name))
        run = self._app.run_action
        if isinstance(panel := screen.focused, Panel):
            for command in rekeyed(panel.COMMANDS, panel.scope, screen.keymap):
                text = f"{command.help} ({command.shown_key})"
                yield SystemCommand(command.title, text, partial(run, command.action, panel))
        for command in rekeyed(offered(view), "app", screen.keymap):
            if command.action not in ("command_palette", "clear"):
                text = f"{command.help} ({command.shown_key})"
                yield SystemCommand(command.title, text, partial(run, command.action))
        yield SystemCommand("Theme", "Change the colours", self._app.action_change_theme)

    def action_page(self, name: str) -> None:
        if LOG_PAGE in (name, self._focus.page):
            self._feeds.shown.log.unseen = 0
        self._focus.page = name
        if name == "files":
            self._feeds.library.refresh(self._feeds.behind())
        if name == COMPARISON_PAGE:
            self._feeds.library.look_beside(self._feeds.shown.source.paths)
        self._painter.paint()

    def answer(self, request: PageRequest) -> None:
        match request:
            case ChooseStep(step):
                self.choose_step(step)
                return
            case Choose(pick):
                self._focus.choose(pick, self._painter.shown())
            case Narrow(path):
                self._focus.narrow(path)
            case Sift(gaps):
                self._focus.sift(gaps)
        if request.page:
            self.action_page(request.page)
        self._painter.paint()

    def action_steps(self) -> None:
        from decodescope.tui.screens.steps import StepsScreen

        view = self._painter.shown()
        if not view.has_steps:
            self._app.notify(NO_STEPS, severity="warning")
        else:
            self._app.push_screen(StepsScreen(self._painter.screen.brush, view))

    def action_next_step(self, by: int) -> None:
        window = self._painter.shown().window
        if window is None or window.tracks.home_step is None:
            self._app.notify(NO_STEPS, severity="warning")
            return
        steps, place = window.tracks.step.tolist(), window.tracks.home_step
        if self._wanted_step is not None:
            place = steps.index(self._wanted_step[1])
        self.choose_step(steps[max(min(place + by, len(steps) - 1), 0)])

    def choose_step(self, step: int | None) -> None:
        """Show the figures of a step on every page, computed in a thread; None is the median."""
        view = self._painter.shown()
        if view.window is None:
            return
        self._wanted_step = None
        if step is None:
            self._focus.choose_step(None, view)
            self._painter.paint()
        elif not view.window.report.steps[step].gpu_ops:
            self._app.notify(f"Step {step} put no work on a device.", severity="warning")
        else:
            self._wanted_step = (view.window.whole, step)
            if not self._finding_step:
                self._app.run_worker(self._find_step(), name="step")

    async def _find_step(self) -> None:
        """Show the step that is wanted last; those that were wanted meanwhile are passed over."""
        self._finding_step = True
        while (wanted := self._wanted_step) is not None:
            window = await asyncio.to_thread(window_of_step, *wanted)
            if self._wanted_step is wanted:
                self._wanted_step, view = None, self._painter.shown()
                if view.window is not None and view.window.whole is wanted[0]:
                    self._focus.choose_step(window, view)
        self._finding_step = False
        self._painter.paint()

    def action_clear(self) -> None:
        if self._feeds.view().banner is not None:
            self._feeds.shown.set(banner=None)
        elif not self._painter.screen.forget_typed():
            self._focus.clear(self._painter.shown())
        self._painter.paint()

    def action_command_palette(self) -> None:
        from decodescope.tui.screens.dialogs import Palette

        if not isinstance(self._app.screen, Palette):
            self._app.push_screen(Palette(id="--command-palette"))

    def action_freeze(self) -> None:
        if self._painter.frozen:
            self._painter.thaw()
            self._feeds.analyse()
        else:
            self._painter.freeze()

    def action_copy(self) -> None:
        """Copy the page as text (OSC 52, so it works over SSH)."""
        self._app.copy_to_clipboard(self._painter.screen.as_text())
        self._app.notify("The page is on the clipboard as text.")

    def action_help(self) -> None:
        from decodescope.tui.screens.help import HelpScreen

        screen, local, columns = self._painter.screen, tuple[Command, ...](), []
        panel = screen.focused
        if isinstance(panel, Panel):
            local = rekeyed(panel.COMMANDS, panel.scope, screen.keymap)
            columns = panel.column_help()
        everywhere = reachable(local, rekeyed(offered(self._feeds.view()), "app", screen.keymap))
        self._app.push_screen(HelpScreen(local, everywhere, columns))


def no_markup(text: str) -> str:
    """`text` for the command palette, which reads every text as markup."""
    return plain_line(text).replace("[", r"\[")
