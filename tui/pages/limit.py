"""Page 6: how far a step is from the physical limit, and what is between them."""

from dataclasses import replace

from decodescope.tui.pages.layout import BOX_MIN_WIDTH, Band, Page, Room, edge_rows
from decodescope.tui.panels.limit.bandwidths import BandwidthPanel
from decodescope.tui.panels.limit.roles import RolesPanel
from decodescope.tui.panels.limit.roofline import RooflinePanel
from decodescope.tui.panels.limit.verdict import FullVerdictPanel
from decodescope.tui.panels.limit.waterfall import WaterfallPanel

_VERDICT_MAX_ROWS = 12
_DETAILS_BESIDE_WIDTH = 110
_ROLES_BESIDE_WIDTH = 110
_SOME_ROLES = 7


def bands(room: Room) -> list[Band]:
    """Verdict, waterfall, roles and bandwidths take the rows that they need; the roofline the
    others, with the details of the chosen kernel beside it where there is room. Roles stand beside
    the waterfall on wide screens; where room is short, bandwidths that are unknown and the roofline
    of a trace of little known work go before them."""
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
    least = edge + min(points or 7, 7)
    found.append(Band(roofline, least, edge + 400, 5, 9, least + 1))
    if roles > edge and not beside:
        few = min(edge + 3, roles)
        if points is None:
            found.insert(2, Band((("roles", 1.0),), few, roles, 6, 3, roles))
        else:
            some = min(edge + _SOME_ROLES, roles)
            found.insert(2, Band((("roles", 1.0),), few, roles, 3, 3, some))
            if _is_short(room, verdict):
                # What says little or nothing leaves its rows to the roles, and the waterfall its
                # smallest parts.
                found[1] = replace(found[1], comfort=found[1].least)
                found = [band for band in found[:-1] if not _says_nothing(room, band)]
    return found


def _says_nothing(room: Room, band: Band) -> bool:
    """Whether it wants its one row to say that bandwidths are unknown."""
    return band.panels[0][0] == "bandwidths" and room.wanted.get("bandwidths") == 1


def _is_short(room: Room, verdict: int) -> bool:
    """Whether the panels have not all the rows that tell most. A taller screen loses no panel, so
    boxes are counted where it would have them."""
    most = {"waterfall": 12, "roles": _SOME_ROLES, "bandwidths": 3, "roofline": 7}
    edge = edge_rows("box" if room.width >= BOX_MIN_WIDTH else "rule")
    rows = (edge + min(room.wanted.get(name, many), many) for name, many in most.items())
    return room.height < verdict + sum(rows)


PAGE = Page(
    "limit",
    "6",
    "Limit",
    (RooflinePanel, FullVerdictPanel, WaterfallPanel, RolesPanel, BandwidthPanel),
    bands,
    details=False,
)
