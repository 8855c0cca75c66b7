"""Page 6: how far a step is from the physical limit, and what is between them."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.limit.bandwidths import BandwidthPanel
from decodescope.tui.panels.limit.roofline import RooflinePanel
from decodescope.tui.panels.limit.verdict import FullVerdictPanel
from decodescope.tui.panels.limit.waterfall import WaterfallPanel

_VERDICT_MAX_ROWS = 12
_DETAILS_BESIDE_WIDTH = 110


def bands(room: Room) -> list[Band]:
    """Verdict, waterfall and bandwidths take the rows that they need; the roofline the others, with
    the details of the chosen kernel beside it where there is room."""
    edge = edge_rows(room.frame)
    verdict = max(min(room.wanted.get("verdict_full", 1), _VERDICT_MAX_ROWS, room.height // 3), 1)
    waterfall = room.wanted.get("waterfall", 6) + edge
    bandwidths = room.wanted.get("bandwidths", 3) + edge
    roofline: tuple[tuple[str, float], ...] = (("roofline", 1.0),)
    if room.width >= _DETAILS_BESIDE_WIDTH:
        roofline = (("roofline", 0.66), ("details", 0.34))
    return [
        Band((("verdict_full", 1.0),), min(verdict, 2), verdict, 1, 1, verdict),
        Band((("waterfall", 1.0),), min(edge + 4, waterfall), waterfall, 2, 4, waterfall),
        Band((("bandwidths", 1.0),), min(edge + 2, bandwidths), bandwidths, 4, 2, bandwidths),
        Band(roofline, edge + 7, edge + 400, 5, 9, edge + 8),
    ]


PAGE = Page(
    "limit",
    "6",
    "Limit",
    (RooflinePanel, FullVerdictPanel, WaterfallPanel, BandwidthPanel),
    bands,
    details=False,
)
