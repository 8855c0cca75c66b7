"""Page 8: the files that can be opened."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.files import FilesPanel, PathPanel


def bands(room: Room) -> list[Band]:
    """The path field above the table, which takes every other row."""
    edge = edge_rows(room.frame)
    return [
        Band((("path", 1.0),), edge + 2, edge + 3, 1, 1),
        Band((("files", 1.0),), edge + 3, edge + 200, 2, 3),
    ]


PAGE = Page("files", "8", "Files", (PathPanel, FilesPanel), bands, details=False)
