"""Page 9: the log of the app and of the worker, and every finding of a trace's health."""

from decodescope.tui.model.view import LOG_PAGE
from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.log_table import LogTablePanel


def bands(room: Room) -> list[Band]:
    """The table takes every row; it shows the whole line at the cursor itself."""
    edge = edge_rows(room.frame)
    return [Band((("log", 1.0),), edge + 2, edge + 400, 1, 3)]


PAGE = Page(LOG_PAGE, "9", "Log", (LogTablePanel,), bands, details=False)
