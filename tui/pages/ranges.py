"""Page 5: which part of the model takes the time."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.range_tree import RangeTreePanel


def bands(room: Room) -> list[Band]:
    """The tree takes every row; without room for some of it, the details go first."""
    edge = edge_rows(room.frame)
    return [Band((("range_tree", 1.0),), edge + 6, edge + 400, 1, 3)]


PAGE = Page("ranges", "5", "Ranges", (RangeTreePanel,), bands)
