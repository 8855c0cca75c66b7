"""Page 6: how far a step is from the physical limit, and what is between them."""

from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.limit.bandwidths import BandwidthPanel
from decodescope.tui.panels.limit.roles import RolesPanel
from decodescope.tui.panels.limit.roofline import RooflinePanel
from decodescope.tui.panels.limit.verdict import FullVerdictPanel
from decodescope.tui.panels.limit.waterfall import WaterfallPanel

_VERDICT_MAX_ROWS = 12
_DETAILS_BESIDE_WIDTH = 110
_ROLES_BESIDE_WIDTH = 110


def bands(room: Room) -> list[Band]:
    """Verdict, waterfall, roles and bandwidths take the rows that they need; the roofline the
    others, with the details of the chosen kernel beside it where there is room. Roles stand beside
    the waterfall on wide screens; where room is short, the roofline of a trace of little known
    work goes before them."""
    edge = edge_rows(room.frame)
    verdict = max(min(room.wanted.get("verdict_full", 1), _VERDICT_MAX_ROWS, room.height // 3), 1)
    waterfall = room.wanted.get("waterfall", 6) + edge
    roles = room.wanted.get("roles", 0) + edge
    beside = room.width >= _ROLES_BESIDE_WIDTH and roles > edge
    step: tuple[tuple[str, float], ...] = (("waterfall", 1.0),)
    if beside:
        step, waterfall = (("waterfall", 0.56), ("roles", 0.44)), max(waterfall, roles)
    bandwidths = room.wanted.get("bandwidths", 3) + edge
    roofline: tuple[tuple[str, float], ...] = (("roofline", 1.0),)
    if room.width >= _DETAILS_BESIDE_WIDTH:
        roofline = (("roofline", 0.66), ("details", 0.34))
    found = [
        Band((("verdict_full", 1.0),), min(verdict, 2), verdict, 1, 1, verdict),
        Band(step, min(edge + 4, waterfall), waterfall, 2, 4, waterfall),
        Band((("bandwidths", 1.0),), min(edge + 2, bandwidths), bandwidths, 4, 2, bandwidths),
    ]
    # A roofline of little known work wants few rows.
    points = room.wanted.get("roofline")
    if roles > edge and not beside:
        first = 6 if points is None else 3
        found.insert(2, Band((("roles", 1.0),), min(edge + 3, roles), roles, first, 3, roles))
    least = edge + min(points or 7, 7)
    found.append(Band(roofline, least, edge + 400, 5, 9, least + 1))
    return found


PAGE = Page(
    "limit",
    "6",
    "Limit",
    (RooflinePanel, FullVerdictPanel, WaterfallPanel, RolesPanel, BandwidthPanel),
    bands,
    details=False,
)
