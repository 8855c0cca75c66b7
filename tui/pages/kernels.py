"""Page 3: every kernel of the window."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.kernels.table import KernelTablePanel


def bands(room: Room) -> list[Band]:
    """The table; the details are below it where it keeps six rows."""
    edge = edge_rows(room.frame)
    return [Band((("kernels", 1.0),), edge + 7, edge + 200, 1, 3, edge + 9)]


PAGE = Page("kernels", "3", "Kernels", (KernelTablePanel,), bands)
