"""The main screen: title, tabs, strip and keys around the panels of one page."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from textual import events, on
from textual.app import ComposeResult
from textual.geometry import Region
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widget import AwaitMount, Widget

from decodescope.analyzer.text.plain import plain_line
from decodescope.tui.model.view import View, stand_in
from decodescope.tui.pages.layout import Page, Plan, plan
from decodescope.tui.panels.around import (
    BannerPanel,
    KeysPanel,
    PlaybackPanel,
    TabsPanel,
    banner_rows,
)
from decodescope.tui.panels.details import DetailsPanel
from decodescope.tui.panels.header import StripPanel, TitlePanel
from decodescope.tui.panels.messages import PanelChanged
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Brush, Empty, TextLine

_NO_PLAN = Plan("rule", {})


class MainScreen(Screen[None]):
    """The panels of a page are mounted when it is first shown, or ahead of that, one by one
    (`mount_ahead`); those of other pages are hidden and do nothing."""

    CSS = "MainScreen { overflow: hidden; }"
    AUTO_FOCUS = ""
    # Panels mark their own focus: no repaint of the whole screen.
    focused: Reactive[Widget | None] = Reactive(None, repaint=False)

    def __init__(self, brush: Brush, view: View, pages: tuple[Page, ...]) -> None:
        super().__init__()
        self.brush = brush
        self._pages = {page.name: page for page in pages}
        self._first = self._shown = view
        self._plan = _NO_PLAN
        self._page = ""
        self._focused_on: dict[str, str] = {}
        self.keymap: Mapping[str, str] = {}
        self._mounting: list[AwaitMount] = []
        around = (TitlePanel, StripPanel, BannerPanel, DetailsPanel, PlaybackPanel)
        self._around_page: list[Panel[Any]] = [kind(brush, view) for kind in around]
        self._page_panels: dict[type[Panel[Any]], Panel[Any]] = {}
        tabs = [(page.name, page.key, page.label) for page in pages]
        self._tabs = TabsPanel(brush, view, tabs)
        self._keys = KeysPanel(brush, view)
        self._load(view.page)

    def compose(self) -> ComposeResult:
        yield from self._panels()

    def on_mount(self) -> None:
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        self._arrange()

    def on_panel_changed(self, message: PanelChanged) -> None:
        """Place the panels first: the panel that wants other rows is painted once."""
        message.stop()
        self._arrange()
        self._show_keys()
        message.panel.refresh()

    @on(events.DescendantFocus)
    @on(events.DescendantBlur)
    def _show_keys(self) -> None:
        if isinstance(self.focused, Panel):
            self._focused_on[self._page] = self.focused.NAME
        self._keys.show(self._shown)

    def refresh(
        self, *regions: Region, repaint: bool = True, layout: bool = False, **options: bool
    ) -> Self:
        """A new layout repaints what it changes: no whole screen after panels were mounted."""
        return super().refresh(*regions, repaint=repaint and not layout, layout=layout, **options)

    def use_keys(self, keymap: Mapping[str, str]) -> None:
        self.keymap = self._keys.keymap = keymap
        self._show_keys()

    def use(self, brush: Brush) -> None:
        self.brush = brush
        self._plan = _NO_PLAN
        self._arrange()

    def show(self, view: View) -> None:
        """Show `view`, the keys last: they are those that the other panels take then."""
        self._shown = view
        self._show(self._visible())
        self._arrange()

    async def mounted(self) -> None:
        """Wait until the panels of the page, and what they are composed of, are mounted."""
        while self._mounting:
            await self._mounting.pop()

    def mount_ahead(self) -> bool:
        """Mount one panel of a page that was not shown yet; False if there is none. It picks its
        data when it is shown, so this takes no longer for a large trace."""
        for page in self._pages.values():
            for kind in page.panels():
                if kind not in self._page_panels:
                    self._add([kind], self._first)
                    return True
        return False

    def forget_typed(self) -> bool:
        return any(panel.forget_typed() for panel in self._visible())

    def as_text(self) -> str:
        """The contents of the page, as lines for the clipboard."""
        lines: list[TextLine] = []
        for panel in self._visible():
            data = panel.pick(self._shown)
            if not isinstance(data, Empty):
                lines += panel.as_text(data)
        rows = ((line,) if isinstance(line, str) else line for line in lines)
        return "".join("\t".join(map(plain_line, row)) + "\n" for row in rows)

    def _visible(self) -> list[Panel[Any]]:
        return [panel for panel in self._panels() if panel.NAME in self._plan.places]

    def _panels(self) -> list[Panel[Any]]:
        return [*self._around_page, *self._page_panels.values(), self._tabs, self._keys]

    def _load(self, name: str) -> Page:
        """The page with this name, else the first, with a panel of each of its kinds."""
        page = self._pages.get(name) or next(iter(self._pages.values()))
        if missing := [kind for kind in page.panels() if kind not in self._page_panels]:
            self._add(missing, self._shown)
        return page

    def _add(self, kinds: Sequence[type[Panel[Any]]], view: View) -> None:
        """Make a hidden panel of each kind, and mount it if the others are."""
        panels = [kind(self.brush, view) for kind in kinds]
        for panel in panels:
            panel.display = False
        self._page_panels.update(zip(kinds, panels, strict=True))
        if self.children:
            self._mounting.append(self.mount(*panels, before=self._tabs))

    def _show(self, panels: Iterable[Panel[Any]]) -> None:
        for panel in panels:
            panel.show(stand_in(self._shown, panel.PART))

    def _arrange(self) -> None:
        """Place the panels of the page; those that become visible get the view first."""
        width, height = self.size.width, self.size.height
        if width < 1 or height < 1 or not self.children:
            return
        view = self._shown
        page = self._load(view.page)
        wanted = self._wanted(page, width)
        wanted["banner"] = banner_rows(view.banner, width, height)
        wanted["details"] = int(view.selection.selects)
        new = plan(page, view.kind, (width, height), wanted, not self.brush.inks.letters)
        if new == self._plan and page.name == self._page:
            return
        before, self._plan = self._plan.places, new
        brush = Brush(self.brush.inks, self.brush.glyphs, new.frame)
        for panel in self._panels():
            place = new.places.get(panel.NAME)
            panel.display = place is not None
            panel.use(brush)
            if place is not None:
                panel.styles.width, panel.styles.height = place.width, place.height
                panel.styles.position = "absolute"
                panel.styles.offset = (place.x, place.y)
        self._show(panel for panel in self._visible() if panel.NAME not in before)
        if page.name != self._page:
            self._page = page.name
            self._focus_page(page)

    def _wanted(self, page: Page, width: int) -> dict[str, int]:
        panels = [self._page_panels[kind] for kind in page.panels()]
        self._show(panel for panel in panels if panel.wanted_rows(width) is not None)
        rows = {panel.NAME: panel.wanted_rows(width) for panel in panels}
        return {name: wanted for name, wanted in rows.items() if wanted is not None}

    def _focus_page(self, page: Page) -> None:
        """Focus the panel that had the keys on this page, else its first that takes some."""
        visible = self._visible()
        panels = [self._page_panels[kind] for kind in page.panels()]
        takers = {panel.NAME: panel for panel in panels if panel.can_focus and panel in visible}
        first = next(iter(takers.values()), None)
        self.set_focus(takers.get(self._focused_on.get(page.name, ""), first))
        self._show_keys()
