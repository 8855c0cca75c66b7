"""Page 2: all lanes of the window over time."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.timeline.panel import TimelinePanel


def bands(room: Room) -> list[Band]:
    """The lanes take every row."""
    edge = edge_rows(room.frame)
    return [Band((("timeline", 1.0),), edge + 4, edge + 200, 1, 3, edge + 11)]


PAGE = Page("timeline", "2", "Timeline", (TimelinePanel,), bands)
