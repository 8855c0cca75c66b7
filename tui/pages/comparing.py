"""Page 7: variants or files against each other, and the ranks of one run."""

from decodescope.tui.model.view import COMPARISON_PAGE
from decodescope.tui.pages.layout import Band, Page, Room, edge_rows
from decodescope.tui.panels.comparing.collectives import CollectivesPanel
from decodescope.tui.panels.comparing.gpus import WaitingGpusPanel
from decodescope.tui.panels.comparing.kernels import ComparisonKernelsPanel
from decodescope.tui.panels.comparing.ranges import ComparisonRangesPanel
from decodescope.tui.panels.comparing.setup import ComparisonSetupPanel
from decodescope.tui.panels.comparing.sides import ComparisonSidesPanel
from decodescope.tui.panels.comparing.skew import SkewPanel
from decodescope.tui.panels.comparing.status import ComparisonStatusPanel
from decodescope.tui.panels.comparing.step import ComparisonStepPanel
from decodescope.tui.panels.comparing.waterfalls import ComparisonWaterfallsPanel

SIDE_BY_SIDE_WIDTH = 130
_STATUS_MOST = 4
_OF_RANKS = ("gpus", "collectives", "skew")
_TABLES = ("ab_step", "ab_ranges", "ab_kernels")


def bands(room: Room) -> list[Band]:
    """Choices and results first; what a result is made of once there is one."""
    edge, wanted = edge_rows(room.frame), room.wanted
    found = []
    if status := wanted.get("ab_status", 0):
        found.append(Band((("ab_status", 1.0),), 1, min(status, _STATUS_MOST), 2, 1, 2))
    setup, sides = wanted.get("ab_setup", 1), wanted.get("ab_sides", 1)
    found.append(Band((("ab_setup", 1.0),), edge + min(setup, 3), edge + setup, 4, 2,
                      edge + min(setup, 5)))  # fmt: skip
    found += _ranks(room, edge)
    found.append(Band((("ab_sides", 1.0),), edge + min(sides, 3), edge + sides, 1, 3,
                      edge + min(sides, 8)))  # fmt: skip
    if waterfalls := wanted.get("ab_waterfalls", 0):
        few = edge + min(waterfalls, 2)
        whole = edge + waterfalls
        found.append(Band((("ab_waterfalls", 1.0),), few, whole, 5, 2, whole))
    tables = [name for name in _TABLES if wanted.get(name)]
    rows = {name: max(edge + 1 + wanted[name], edge + 3) for name in tables}
    beside = room.width >= SIDE_BY_SIDE_WIDTH and len(tables) > 1
    alone = tables[:-2] if beside else tables
    lines = [(name,) for name in alone] + ([tuple(tables[-2:])] if beside else [])
    for place, names in enumerate(lines):
        share = tuple((name, 1 / len(names)) for name in names)
        comfort = edge + 6 if len(names) > 1 else edge + 4
        most = max(rows[name] for name in names)
        found.append(Band(share, edge + 3, most, 6 + place, 5 - place, comfort))
    return found


def _ranks(room: Room, edge: int) -> list[Band]:
    """The tables of ranks or GPUs that wait; they go first where a result needs the room."""
    wanted = {name: room.wanted.get(name, 0) for name in _OF_RANKS}
    shown = [name for name in _OF_RANKS if wanted[name]]
    if room.width >= SIDE_BY_SIDE_WIDTH and len(shown) > 1:
        rows = edge + max(wanted.values())
        share = tuple((name, 1 / len(shown)) for name in shown)
        return [Band(share, edge + 2, rows, 9, 1, min(rows, edge + 6))]
    return [
        Band(((name, 1.0),), edge + 2, edge + wanted[name], 9 + place, 1,
             edge + min(wanted[name], 5))
        for place, name in enumerate(shown)
    ]  # fmt: skip


PAGE = Page(
    COMPARISON_PAGE,
    "7",
    "A/B",
    (
        ComparisonSetupPanel,
        ComparisonStatusPanel,
        WaitingGpusPanel,
        CollectivesPanel,
        SkewPanel,
        ComparisonSidesPanel,
        ComparisonWaterfallsPanel,
        ComparisonStepPanel,
        ComparisonRangesPanel,
        ComparisonKernelsPanel,
    ),
    bands,
    details=False,
)
