"""Page 4: why the GPU was idle, class by class and gap by gap."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.gaps.classes import GapClassesPanel
from decodescope.tui.panels.gaps.listing import GapListPanel


def bands(room: Room) -> list[Band]:
    """The classes take the rows that they need, at most a third; the list takes the others."""
    edge = edge_rows(room.frame)
    wanted = room.wanted.get("gap_classes", 6) + edge
    classes = max(min(wanted, room.height // 3), edge + 3)
    return [
        Band((("gap_classes", 1.0),), edge + 3, classes, 2, 1, classes),
        Band((("gap_list", 1.0),), edge + 3, edge + 400, 1, 9),
    ]


PAGE = Page("gaps", "4", "Gaps", (GapListPanel, GapClassesPanel), bands)
