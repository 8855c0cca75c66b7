"""Actions on what is looked at: pages, selection, palette, help."""

from collections.abc import Iterable
from functools import partial

from textual.app import SystemCommand
from textual.screen import Screen

from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.actions.run import RunActions
from decodescope.tui.commands import offered, reachable, rekeyed
from decodescope.tui.model.view import LOG_PAGE
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.panels.messages import Choose, Narrow, Sift, Turn
from decodescope.tui.panels.panel import Panel


class LookActions(RunActions):
    """They change no run and no file."""

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Every action that is offered, for the command palette."""
        view = self._feed.view()
        for index, choice in enumerate(view.choices):
            if choice.unavailable is None and not view.following:
                title = no_markup(f"Switch to {choice.name}")
                summary = no_markup(choice.summary)
                yield SystemCommand(title, summary, partial(self.action_choose, index))
        for page in PAGES:
            yield SystemCommand(f"Page: {page.label}", f"Show this page ({page.key})",
                                partial(self.action_page, page.name))  # fmt: skip
        focused = self._main.focused
        if isinstance(focused, Panel):
            for command in focused.commands:
                yield SystemCommand(command.title, f"{command.help} ({command.shown_key})",
                                    partial(self.run_action, command.action, focused))  # fmt: skip
        for command in rekeyed(offered(view), "app", self._keys):
            if command.action not in ("command_palette", "clear"):
                yield SystemCommand(command.title, f"{command.help} ({command.shown_key})",
                                    partial(self.run_action, command.action))  # fmt: skip
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    def action_page(self, name: str) -> None:
        """Show the page with this name."""
        if LOG_PAGE in (name, self._focus.page):
            self._feed.seen()
        self._focus.page = name
        if name == "files":
            self._library.refresh(self._live is not None and self._feed is not self._live)
        self._painter.paint()

    def on_turn(self, message: Turn) -> None:
        """A panel leads to another page."""
        self.action_page(message.page)

    def on_choose(self, message: Choose) -> None:
        """A panel selected something in the window it shows."""
        self._focus.choose(message.pick, self._painter.shown()[0])
        self._painter.paint()

    def on_narrow(self, message: Narrow) -> None:
        """A panel shows only what is inside a range, or everything again."""
        self._focus.narrow(message.path)
        self._painter.paint()

    def on_sift(self, message: Sift) -> None:
        """A panel lists only some gaps."""
        self._focus.sift(message.gaps)
        self._painter.paint()

    def action_clear(self) -> None:
        """Hide the banner; without one, drop what is searched and filtered on the page, then the
        selection; then show everything again."""
        if self._feed.view().banner is not None:
            self._feed.dismiss_banner()
        elif not self._main.forget_typed():
            self._focus.clear(self._painter.shown()[0])
        self._painter.paint()

    def action_command_palette(self) -> None:
        """Search all actions."""
        from decodescope.tui.screens.dialog import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def action_freeze(self) -> None:
        """Freeze the view, or continue."""
        if self._painter.frozen:
            self._painter.thaw()
            self._start_analysis()
        else:
            self._painter.freeze()

    def action_copy(self) -> None:
        """Copy the page as text (OSC 52, so it works over SSH)."""
        self.copy_to_clipboard(self._main.as_text())
        self.notify("The page is on the clipboard as text.")

    def action_help(self) -> None:
        """Show all keys and what the figures mean."""
        from decodescope.tui.screens.help import HelpScreen

        focused = self._main.focused
        here = focused.commands if isinstance(focused, Panel) else ()
        everywhere = rekeyed(offered(self._feed.view()), "app", self._keys)
        self.push_screen(HelpScreen(self._inks(), here, reachable(here, everywhere)))


def no_markup(text: str) -> str:
    """`text` for the command palette, which reads every text as markup."""
    return plain_line(text).replace("[", r"\[")
