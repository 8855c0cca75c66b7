"""The decodescope terminal app: pages over a live worker, a recording or trace files."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from textual import events, on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.screen import Screen
from textual.theme import Theme

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import Failure
from decodescope.tui.actions.files import FileController
from decodescope.tui.actions.pages import PageController
from decodescope.tui.actions.run import RunController
from decodescope.tui.commands import COMMANDS, REPLAY_COMMANDS, bindings
from decodescope.tui.comparisons import Comparisons
from decodescope.tui.feeds import Feeds
from decodescope.tui.library import Library
from decodescope.tui.link.comparison import ComparisonLink
from decodescope.tui.model.focus import Focus
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.shelf import Shelf
from decodescope.tui.model.sources import Source
from decodescope.tui.model.user_files import Memory, Places, read_keymap
from decodescope.tui.model.view import COMPARISON_PAGE, AppClock, View
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.painter import Painter
from decodescope.tui.panels.details import DetailsPanel
from decodescope.tui.panels.messages import AskComparison, AskFile, GoTo, PageRequest
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush
from decodescope.tui.screens.main import MainScreen
from decodescope.tui.style.palette import ASCII, DARK, LIGHT, PLAIN, UNICODE, Inks, themed_inks
from decodescope.tui.terminal_app import TerminalApp, TerminalTraits


class DecodescopeApp(TerminalApp):
    """Joins the parts of the app, and passes keys and messages to the part that answers them."""

    TITLE = "decodescope"
    # On a small screen a notification takes its text's rows, and no more.
    CSS = """
    Toast { padding: 0 1; margin-top: 0; max-width: 80%; }
    Input > .input--placeholder, Input > .input--suggestion { color: $foreground-muted; }
    OptionList > .option-list--option-disabled { color: $foreground-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings((*COMMANDS, *REPLAY_COMMANDS), "app"),
        *(Binding(page.key, f"page('{page.name}')", page.label, show=False) for page in PAGES),
    ]

    def __init__(
        self,
        source: Source,
        traits: TerminalTraits | None = None,
        clock: AppClock | None = None,
        folder: Path | None = None,
        page: str | None = None,
        places: Places | None = None,
        comparison: ComparisonLink | None = None,
        mount_ahead: bool = False,
    ) -> None:
        """`folder` is where traces and screenshots are written, None for the current one. `page` is
        the name of the page to begin with, None for the first. `places` are the user's files
        of what is remembered and of keys; None remembers nothing. `comparison` measures variants
        in turn. `mount_ahead`: pages are mounted before they are shown, while no key is pressed."""
        super().__init__(traits or TerminalTraits())
        clock, folder = clock or AppClock(), folder or Path.cwd()
        feed = open_feed(source, clock)
        self._mount_ahead = mount_ahead
        self._focus = Focus(page or PAGES[0].name, shelf=Shelf(folder=folder))
        self._places = places
        self._memory = Memory(places.state if places is not None else None)
        self._choose_theme()
        self._main = MainScreen(self._brush(), self._focus.applied(feed.view()), PAGES)
        self._painter = Painter(self._main, feed, self._focus)
        self._comparisons = Comparisons(self, self._focus, self._painter, comparison)
        self._library = Library(
            self, self._focus, self._memory, clock, self._painter, folder, [source]
        )
        self._feeds = Feeds(
            self, feed, clock, self._focus, self._painter, self._library, self._memory, folder
        )
        self._runs = RunController(self._feeds)
        self._pages = PageController(self._feeds, self._runs)
        self._files = FileController(self._feeds, self._pages, self._runs)
        self._take_actions()

    # What whoever runs the app asks

    @property
    def fatal_failure(self) -> Failure | None:
        """Why the live worker gave up, None if it did not or was restarted since."""
        live = self._feeds.live
        return live.view().fatal if live is not None else None

    def view(self) -> View:
        return self._feeds.view()

    @property
    def busy(self) -> bool:
        return self._focus.page == "files" and self._library.busy

    def paint(self) -> None:
        self._painter.paint()

    # Begin and end

    def get_default_screen(self) -> Screen[None]:
        return self._main

    def on_mount(self) -> None:
        self._painter.begin()
        self.theme_changed_signal.subscribe(self, self._recolour)
        self._read_keymap()
        self._feeds.begin()
        self._pages.action_page(self._focus.page)
        if self._mount_ahead:
            self._painter.mount_ahead()

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.MouseDown):
            self._painter.acted()
        await super().on_event(event)

    def ending(self) -> None:
        self._feeds.shown.ending()
        self._painter.paint()

    async def close_links(self) -> None:
        await asyncio.gather(self._feeds.close(), self._comparisons.close())

    # Themes and keys of the user

    def _choose_theme(self) -> None:
        for own in (DARK, LIGHT, PLAIN):
            self.register_theme(own)
        remembered = self._memory.remembered.theme or ""
        theme = remembered if remembered in self.available_themes else DARK.name
        self.theme = theme if self._traits.color else PLAIN.name

    def _brush(self) -> Brush:
        inks = Inks()
        if self._traits.color:
            few_colors = self._traits.few_colors
            inks = themed_inks(self.get_css_variables(), self.current_theme.dark, few_colors)
        return Brush(inks, UNICODE if self._traits.unicode else ASCII)

    def _recolour(self, theme: Theme) -> None:
        brush = self._brush()
        self._main.use(brush)
        for dialog in self.screen_stack[1:]:
            for panel in dialog.query(Panel):
                panel.use(brush)
        if self._traits.color:
            self._feeds.remember(theme=theme.name)

    def _read_keymap(self) -> None:
        problem = self._memory.problem
        try:
            if self._places is not None:
                keymap = read_keymap(self._places.keymap, all_actions)
                self.set_keymap(keymap)
                self._main.use_keys(keymap)
        except InputError as error:
            self._feeds.shown.note("warning", str(error))
        if problem:
            self._feeds.shown.note("warning", problem)

    # Keys: every action of `COMMANDS`, and of clicks

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        return self._pages.system_commands()

    def _take_actions(self) -> None:
        """Textual looks for the method of an action on the app: most are those of a controller."""
        for controller in (self._pages, self._runs, self._files):
            for name in dir(controller):
                if name.startswith("action_"):
                    setattr(self, name, getattr(controller, name))

    def action_compare_windows(self) -> None:
        self._pages.action_page(COMPARISON_PAGE)
        self._comparisons.compare_windows(self._feeds.shown)

    # Messages of panels

    @on(PageRequest)
    def _answer_page_request(self, message: PageRequest) -> None:
        self._pages.answer(message)

    async def on_ask_file(self, message: AskFile) -> None:
        await self._files.answer(message)

    async def on_go_to(self, message: GoTo) -> None:
        await self._runs.seek_to(message.t_ns)

    async def on_ask_comparison(self, message: AskComparison) -> None:
        if message.do == "start" and self._feeds.library.postpones(message):
            return
        view = self._painter.shown()
        await self._comparisons.obey(message, view, self._feeds.shown)


def all_actions() -> dict[str, str]:
    """Every action that a keymap can name, with its own keys."""
    panels = [kind for page in PAGES for kind in page.panels()]
    kinds: list[type[DOMNode]] = [DecodescopeApp, DetailsPanel, *panels]
    actions: dict[str, str] = {}
    for binding in (binding for kind in kinds for binding in kind.BINDINGS):
        if isinstance(binding, Binding) and binding.id is not None:
            actions.setdefault(binding.id, binding.key)
    return actions
