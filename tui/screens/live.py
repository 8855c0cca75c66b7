"""The main screen: one decode step's figures, their history, its timeline, and the tables."""

from decodescope.tui.model.view import Kind
from decodescope.tui.panels.figures import FiguresPanel
from decodescope.tui.panels.footer import LogPanel
from decodescope.tui.panels.panel import Frame
from decodescope.tui.panels.spark import SparkPanel
from decodescope.tui.panels.tables import GapsPanel, KernelsPanel
from decodescope.tui.panels.text import TextPanel
from decodescope.tui.panels.timeline import TimelinePanel
from decodescope.tui.panels.variants import VariantsPanel
from decodescope.tui.panels.verdict import VerdictPanel
from decodescope.tui.screens.base import PanelScreen
from decodescope.tui.screens.layout import Band, edge_rows

SIDE_BY_SIDE_WIDTH = 76


class LiveScreen(PanelScreen):
    """Shows a live run, a recording or trace files."""

    PANELS = (
        FiguresPanel, VerdictPanel, SparkPanel, VariantsPanel, TimelinePanel, GapsPanel,
        KernelsPanel, TextPanel, LogPanel,
    )  # fmt: skip

    @staticmethod
    def bands(kind: Kind, width: int, frame: Frame, color: bool) -> list[Band]:
        """See `PanelScreen.bands`; without colours the timeline has a row of class letters."""
        edge, box = edge_rows(frame), frame == "box"
        wide, text = width >= SIDE_BY_SIDE_WIDTH, kind != "trace"
        figures = 4 + edge if box else 2 if width >= 80 else 4
        timeline = (5 if box else 4) + edge + (not color)
        spark: tuple[tuple[str, float], ...] = (("spark", 1.0),)
        tables: tuple[tuple[str, float], ...] = (("kernels", 1.0),)
        if wide:
            spark = (("spark", 0.68), ("variants", 0.32))
            tables = (("kernels", 0.52), ("gaps", 0.48))
        text_beside_tables = width >= 160 and box and text
        if text_beside_tables:
            tables = (("kernels", 0.36), ("gaps", 0.34), ("text", 0.30))
        bands = [
            Band((("figures", 1.0),), figures, figures, 1),
            Band((("verdict", 1.0),), 1, 2 if width < 140 else 1, 3, 1),
            Band(spark, edge + 2, edge + (6 if box else 2), 5, 1),
            Band((("timeline", 1.0),), timeline, timeline, 4),
        ]
        if not wide:
            bands.append(Band((("gaps", 1.0),), edge + 4, edge + 8, 6, 2))
        bands.append(Band(tables, edge + 4, edge + 30, 7, 6, edge + 7))
        if text and not text_beside_tables:
            bands.append(Band((("text", 1.0),), edge + 1, edge + 12, 8, 3))
        bands.append(Band((("log", 1.0),), 1, 3 if box else 1, 9))
        return bands
