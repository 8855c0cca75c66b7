"""Page 1: a run as it goes, its history, its last step, and where the time goes."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.history import HistoryPanel
from decodescope.tui.panels.last_step import LastStepPanel
from decodescope.tui.panels.tables import GapsPanel, KernelsPanel
from decodescope.tui.panels.text import TextPanel
from decodescope.tui.panels.variants import VariantsPanel
from decodescope.tui.panels.verdict import VerdictPanel

SIDE_BY_SIDE_WIDTH = 76
_VERDICT_MAX_ROWS = 8
_SMALL = 16


def bands(room: Room) -> list[Band]:
    """Without colours the timeline has a row of class letters; a trace has no history."""
    edge, box = edge_rows(room.frame), room.frame == "box"
    wide = room.width >= SIDE_BY_SIDE_WIDTH
    # A trace has no history, so the smallest screen has rows for the first kernels.
    least_table = edge + (2 if room.kind == "trace" else 4)
    share = 4 if room.kind == "trace" and room.height < _SMALL else 3
    most = max(min(_VERDICT_MAX_ROWS, room.height // share), 1)
    verdict = min(max(room.wanted.get("verdict", 1), 1), most)
    timeline = (5 if box else 4) + edge + (not room.color)
    tables: tuple[tuple[str, float], ...] = (("kernels_top", 1.0),)
    if wide:
        tables = (("kernels_top", 0.52), ("gaps_top", 0.48))
    found = [Band((("verdict", 1.0),), verdict, verdict, 1)]
    if room.kind != "trace":
        history: tuple[tuple[str, float], ...] = (("history", 1.0),)
        if wide:
            history = (("history", 0.68), ("variants", 0.32))
        found.append(Band(history, edge + 2, edge + 12, 5, 2, edge + (6 if box else 2)))
    elif room.wanted.get("variants"):
        rows = room.wanted["variants"] + edge
        found.append(Band((("variants", 1.0),), min(rows, edge + 3), rows, 9, 1))
    found.append(Band((("timeline_top", 1.0),), timeline, timeline, 4))
    if not wide:
        found.append(Band((("gaps_top", 1.0),), edge + 4, edge + 8, 7, 2))
    found.append(Band(tables, least_table, edge + 30, 6, 6, edge + 7))
    if room.wanted.get("text"):
        found.append(Band((("text", 1.0),), edge + 1, edge + 12, 8, 3))
    return found


PAGE = Page(
    "live",
    "1",
    "Live",
    (VerdictPanel, HistoryPanel, VariantsPanel, LastStepPanel, KernelsPanel, GapsPanel, TextPanel),
    bands,
    details=False,
)
