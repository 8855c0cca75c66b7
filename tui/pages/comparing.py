"""Page 7: variants or files against each other."""

from decodescope.tui.model.view import COMPARISON_PAGE
from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.comparing.kernels import ComparisonKernelsPanel
from decodescope.tui.panels.comparing.ranges import ComparisonRangesPanel
from decodescope.tui.panels.comparing.setup import ComparisonSetupPanel
from decodescope.tui.panels.comparing.sides import ComparisonSidesPanel
from decodescope.tui.panels.comparing.status import ComparisonStatusPanel
from decodescope.tui.panels.comparing.waterfalls import ComparisonWaterfallsPanel

SIDE_BY_SIDE_WIDTH = 130
_STATUS_MOST = 4


def bands(room: Room) -> list[Band]:
    """Choices and results first; what a result is made of once there is one."""
    edge, wanted = edge_rows(room.frame), room.wanted
    found = []
    if status := wanted.get("ab_status", 0):
        found.append(Band((("ab_status", 1.0),), 1, min(status, _STATUS_MOST), 2, 1, 2))
    setup, sides = wanted.get("ab_setup", 1), wanted.get("ab_sides", 1)
    found.append(Band((("ab_setup", 1.0),), edge + min(setup, 3), edge + setup, 4, 2,
                      edge + min(setup, 5)))  # fmt: skip
    found.append(Band((("ab_sides", 1.0),), edge + min(sides, 3), edge + sides, 1, 3,
                      edge + min(sides, 8)))  # fmt: skip
    if waterfalls := wanted.get("ab_waterfalls", 0):
        few = edge + min(waterfalls, 2)
        whole = edge + waterfalls
        found.append(Band((("ab_waterfalls", 1.0),), few, whole, 5, 2, whole))
    tables = [name for name in ("ab_ranges", "ab_kernels") if wanted.get(name)]
    rows = [edge + 1 + wanted[name] for name in tables]
    if room.width >= SIDE_BY_SIDE_WIDTH and len(tables) > 1:
        half = tuple((name, 0.5) for name in tables)
        found.append(Band(half, edge + 3, max(*rows, edge + 3), 6, 5, edge + 6))
    else:
        found += [Band(((name, 1.0),), edge + 3, max(rows[place], edge + 3), 6 + place, 5 - place,
                       edge + 4) for place, name in enumerate(tables)]  # fmt: skip
    return found


PAGE = Page(
    COMPARISON_PAGE,
    "7",
    "A/B",
    (
        ComparisonSetupPanel,
        ComparisonStatusPanel,
        ComparisonSidesPanel,
        ComparisonWaterfallsPanel,
        ComparisonRangesPanel,
        ComparisonKernelsPanel,
    ),
    bands,
    details=False,
)
