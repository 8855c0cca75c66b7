"""The base of the screens that show the app's `View` in panels."""

from collections.abc import Iterable
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from decodescope.analyzer.plain import plain_line
from decodescope.tui.model.banners import Banner
from decodescope.tui.model.view import Kind, Moment, View
from decodescope.tui.panels.banner import BannerPanel, banner_rows
from decodescope.tui.panels.footer import KeysPanel
from decodescope.tui.panels.panel import Brush, Empty, Frame, Panel
from decodescope.tui.panels.title import TitlePanel
from decodescope.tui.screens.layout import Band, Plan, frame_for, plan


class PanelScreen(Screen[None]):
    """Title, banner and keys, with a subclass's `PANELS` in its `bands` between them."""

    PANELS: ClassVar[tuple[type[Panel[Any]], ...]]
    CSS = "PanelScreen { overflow: hidden; }"

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        super().__init__()
        self._brush = brush
        self._kind: Kind = view.kind
        self._banner: Banner | None = view.banner
        self._plan: Plan | None = None
        kinds: list[type[Panel[Any]]] = [TitlePanel, BannerPanel, *self.PANELS, KeysPanel]
        self._panels = [kind(brush, view, moment) for kind in kinds]

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

    def show(self, view: View, moment: Moment) -> None:
        """Update everything; panels whose data did not change do nothing."""
        self._show(self._panels, view, moment)

    def show_status(self, view: View, moment: Moment) -> None:
        """Update only the panels that stay current while the view is frozen."""
        self._show([panel for panel in self._panels if panel.STATUS], view, moment)

    def show_ages(self, view: View, moment: Moment) -> None:
        """Update only the panels that say how old their figures are."""
        self._show([panel for panel in self._panels if panel.AGES], view, moment)

    def as_text(self, view: View, moment: Moment) -> str:
        """What the screen shows, as lines for the clipboard."""
        lines: list[str] = []
        for panel in self._panels:
            data = panel.pick(view, moment)
            if not isinstance(data, Empty):
                lines += panel.as_text(data)
        return "".join(f"{plain_line(line)}\n" for line in lines)

    def _show(self, panels: Iterable[Panel[Any]], view: View, moment: Moment) -> None:
        if (self._kind, self._banner) != (view.kind, view.banner):
            self._kind, self._banner = view.kind, view.banner
            self._arrange()
        for panel in panels:
            panel.show(view, moment)

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
