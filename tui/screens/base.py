"""The base of the screens that show the app's `View` in panels."""

from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from decodescope.tui.commands import Command
from decodescope.tui.model.banners import Banner
from decodescope.tui.model.view import Kind, Moment, View
from decodescope.tui.panels.banner import BannerPanel, banner_rows
from decodescope.tui.panels.footer import KeysPanel
from decodescope.tui.panels.panel import Brush, Empty, Frame, Panel, ViewPanel
from decodescope.tui.panels.title import TitlePanel
from decodescope.tui.screens.layout import Band, Plan, frame_for, plan


class PanelScreen(Screen[None]):
    """Title, banner and keys, with a subclass's `PANELS` in its `bands` between them."""

    PANELS: ClassVar[tuple[type[ViewPanel[Any]], ...]]
    CSS = "PanelScreen { overflow: hidden; }"

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        super().__init__()
        self._brush = brush
        self._kind: Kind = view.kind
        self._banner: Banner | None = None
        self._plan: Plan | None = None
        self._title = TitlePanel(brush, view, moment)
        self._banner_panel = BannerPanel(brush, None)
        self._keys = KeysPanel(brush, ())
        self._view_panels = (self._title, *(panel(brush, view, moment) for panel in self.PANELS))

    @property
    def _panels(self) -> tuple[Panel[Any], ...]:
        return (*self._view_panels, self._banner_panel, self._keys)

    @staticmethod
    def bands(kind: Kind, width: int, frame: Frame, color: bool) -> list[Band]:
        """The bands of `PANELS` for a source of this kind, from top to bottom."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield from self._panels

    def on_mount(self) -> None:
        """Place the panels for the first time."""
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        """Place the panels again."""
        self._arrange()

    def use(self, brush: Brush) -> None:
        """Draw everything with another theme's styles."""
        self._brush = brush
        self._plan = None
        self._arrange()

    def set_keys(self, keys: tuple[Command, ...]) -> None:
        """Show these keys in the footer."""
        self._keys.show(keys)

    def set_banner(self, banner: Banner | None) -> None:
        """Show or remove the banner; the panels below move."""
        if banner != self._banner:
            self._banner = banner
            self._banner_panel.show(banner)
            self._arrange()

    def show_title(self, view: View, moment: Moment) -> None:
        """Update only the top line, which shows the state even while the view is frozen."""
        self._title.show(self._title.pick(view, moment))

    def show_ages(self, view: View, moment: Moment) -> None:
        """Update only the panels that say how old their figures are."""
        for panel in self._view_panels:
            if panel.AGES:
                panel.show(panel.pick(view, moment))

    def show(self, view: View, moment: Moment) -> None:
        """Update everything; panels whose data did not change do nothing."""
        if self._kind != view.kind:
            self._kind = view.kind
            self._arrange()
        for panel in self._view_panels:
            panel.show(panel.pick(view, moment))

    def as_text(self, view: View, moment: Moment) -> str:
        """What the screen shows, as lines for the clipboard."""
        lines: list[str] = []
        for panel in self._view_panels:
            data = panel.pick(view, moment)
            if not isinstance(data, Empty):
                lines += panel.as_text(data)
        return "\n".join(lines) + "\n"

    def _arrange(self) -> None:
        width, height = self.size.width, self.size.height
        if width < 1 or height < 1 or not self.children:
            return
        frame = frame_for(width, height)
        bands = self.bands(self._kind, width, frame, self._brush.inks.color)
        new = plan(bands, width, height, banner_rows(self._banner, width, height))
        if new == self._plan:
            return
        self._plan = new
        brush = Brush(self._brush.inks, self._brush.glyphs, new.frame)
        for panel in self._panels:
            place = new.places.get(panel.NAME)
            panel.display = place is not None
            panel.use(brush)
            if place is not None:
                panel.styles.width, panel.styles.height = place.width, place.height
                panel.styles.position = "absolute"
                panel.styles.offset = (place.x, place.y)
