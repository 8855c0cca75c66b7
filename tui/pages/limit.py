"""Page 6: how far a step is from the physical limit, and what is between them."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.limit.bandwidths import BandwidthPanel
from decodescope.tui.panels.limit.roofline import RooflinePanel
from decodescope.tui.panels.limit.verdict import FullVerdictPanel
from decodescope.tui.panels.limit.waterfall import WaterfallPanel

_VERDICT_MAX_ROWS = 12


def bands(room: Room) -> list[Band]:
    """Verdict, waterfall and bandwidths take the rows that they need; the roofline the others."""
    edge = edge_rows(room.frame)
    verdict = max(min(room.wanted.get("verdict_full", 1), _VERDICT_MAX_ROWS, room.height // 3), 1)
    waterfall = room.wanted.get("waterfall", 6) + edge
    bandwidths = room.wanted.get("bandwidths", 3) + edge
    return [
        Band((("verdict_full", 1.0),), min(verdict, 2), verdict, 1, 1, verdict),
        Band((("waterfall", 1.0),), edge + 1, waterfall, 2, 4, waterfall),
        Band((("bandwidths", 1.0),), edge + 1, bandwidths, 4, 2, bandwidths),
        Band((("roofline", 1.0),), edge + 2, edge + 400, 5, 9, edge + 8),
    ]


PAGE = Page(
    "limit", "6", "Limit", (RooflinePanel, FullVerdictPanel, WaterfallPanel, BandwidthPanel), bands
)
