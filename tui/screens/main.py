"""The main screen: places the panels and hands each its part of the view."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.screen import Screen

from decodescope.tui.model import present
from decodescope.tui.model.present import Moment
from decodescope.tui.model.session import View
from decodescope.tui.panels.figures import FiguresData, FiguresPanel
from decodescope.tui.panels.layout import Plan, plan
from decodescope.tui.panels.lines import (
    Banner,
    BannerPanel,
    KeyHint,
    KeysPanel,
    LogPanel,
    TextData,
    TextPanel,
    VerdictData,
    VerdictPanel,
)
from decodescope.tui.panels.panel import Brush, Panel
from decodescope.tui.panels.spark import SparkData, SparkPanel
from decodescope.tui.panels.tables import GapsPanel, GapTable, KernelsPanel, KernelTable
from decodescope.tui.panels.timeline import TimelineData, TimelinePanel
from decodescope.tui.panels.title import TitleData, TitlePanel
from decodescope.tui.panels.variants import VariantsData, VariantsPanel

LOG_LINES_SHOWN = 8


class MainScreen(Screen[None]):
    """All panels at absolute places given by `layout.plan`."""

    CSS = "MainScreen { overflow: hidden; }"

    def __init__(self, brush: Brush, keys: tuple[KeyHint, ...]) -> None:
        super().__init__()
        self._brush = brush
        self._plan: Plan | None = None
        self._with_text = True
        self._title = TitlePanel("title", TitleData((), ()), brush)
        self._banner = BannerPanel("banner", None, brush)
        self._figures = FiguresPanel("figures", FiguresData((), ()), brush)
        self._verdict = VerdictPanel("verdict", VerdictData("", ""), brush)
        self._spark = SparkPanel("spark", SparkData((), ()), brush)
        self._variants = VariantsPanel("variants", VariantsData("Variants", (), -1), brush)
        self._timeline = TimelinePanel("timeline", TimelineData(None, "Last step", "", ""), brush)
        self._kernels = KernelsPanel("kernels", KernelTable("", "", (), (), "step", ""), brush)
        self._gaps = GapsPanel("gaps", GapTable("", "", (), "step", ""), brush)
        self._text = TextPanel("text", TextData("Text", "", "", ""), brush)
        self._log = LogPanel("log", (), brush)
        self._keys = KeysPanel("keys", keys, brush)

    @property
    def _panels(self) -> Sequence[Panel[object]]:
        return list(self.query_children(Panel))

    @property
    def banner(self) -> Banner | None:
        """What the banner says, None while there is none."""
        return self._banner.data

    def compose(self) -> ComposeResult:
        yield from (
            self._title, self._banner, self._figures, self._verdict, self._spark, self._variants,
            self._timeline, self._kernels, self._gaps, self._text, self._log, self._keys,
        )  # fmt: skip

    def on_mount(self) -> None:
        """Place the panels for the first time."""
        self._arrange()

    def on_resize(self, event: events.Resize) -> None:
        """Place the panels anew."""
        self._arrange()

    def use(self, brush: Brush) -> None:
        """Draw everything with another theme's styles."""
        self._brush = brush
        self._plan = None
        self._arrange()

    def set_keys(self, keys: tuple[KeyHint, ...]) -> None:
        """Show these keys in the footer."""
        self._keys.show(keys)

    def set_banner(self, banner: Banner | None) -> None:
        """Show or remove the banner; the panels below move."""
        if banner != self._banner.data:
            self._banner.show(banner)
            self._arrange()

    def show_title(self, view: View, moment: Moment) -> None:
        """Only the top line: the state is shown even while the view is frozen."""
        self._title.show(present.title(view, moment))

    def show_ages(self, view: View, moment: Moment) -> None:
        """Only what says how old the figures are."""
        self._figures.show(present.figures(view, moment))
        self._timeline.show(present.timeline(view, moment))

    def show_log(self, view: View) -> None:
        """Only the log."""
        self._log.show(view.log[-LOG_LINES_SHOWN:])

    def show(self, view: View, moment: Moment) -> None:
        """Everything; panels whose part did not change do nothing."""
        if self._with_text != (view.kind != "trace"):
            self._with_text = view.kind != "trace"
            self._arrange()
        self.show_title(view, moment)
        self.show_ages(view, moment)
        self.show_log(view)
        self._verdict.show(present.verdict(view))
        self._spark.show(present.spark(view))
        self._variants.show(present.variants(view))
        self._kernels.show(present.kernels(view))
        self._gaps.show(present.gaps(view))
        self._text.show(present.text(view))

    def _arrange(self) -> None:
        width, height, panels = self.size.width, self.size.height, self._panels
        if width < 1 or height < 1 or not panels:
            return
        rows = self._banner.data.rows(width, height) if self._banner.data else 0
        new = plan(width, height, rows, 0 if self._brush.inks.color else 1,
                   self._with_text)  # fmt: skip
        if new == self._plan:
            return
        self._plan = new
        brush = Brush(self._brush.inks, self._brush.glyphs, self._brush.unicode, new.frame)
        for panel in panels:
            place = new.places.get(panel.id or "")
            panel.display = place is not None
            panel.use(brush)
            if place is not None:
                panel.styles.width, panel.styles.height = place.width, place.height
                panel.styles.position = "absolute"
                panel.styles.offset = (place.x, place.y)
