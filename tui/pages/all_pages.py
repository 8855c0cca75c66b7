"""The pages in the order of their keys: the panels that each shows, and where they are.

A page imports its panels when it is first shown.
"""

from collections.abc import Callable

from decodescope.tui.model.view import COMPARISON_PAGE, LOG_PAGE
from decodescope.tui.pages.layout import Band, Page, Room, edge_rows

# From these widths on, panels of a page are side by side.
STEP_BESIDE_WIDTH = 76
COMPARISON_BESIDE_WIDTH = 130
_DETAILS_BESIDE_WIDTH = 110

Shares = tuple[tuple[str, float], ...]
# The step, the titles, two parts, and a line of what they mean.
_LEAST_ANSWER = 5
_SOME_ANSWER, _SOME_TRACKS = 14, 6
_STATUS_ROWS = 4
_SOME_PARTS = 7
_TABLES_OF_RANKS = ("gpus", "collectives", "skew")
_TABLES_OF_CHANGES = ("ab_step", "ab_ranges", "ab_kernels")


def step_bands(room: Room) -> list[Band]:
    """The answer takes the rows that it needs, and the timeline of its step a few; a run, or what
    the app is attached to, has its rates before both, several servers a row each before these, and
    a run its text last. Without colours the timeline has a row of letters."""
    edge, box = edge_rows(room.frame), room.frame == "box"
    bands = []
    if servers := room.wanted.get("servers"):
        bands.append(Band((("servers", 1.0),), edge + min(servers, 3), edge + servers, 5, 1))
    variants = room.wanted.get("variants")
    if room.kind != "trace" or room.wanted.get("history"):
        beside: Shares = (("history", 0.68), ("variants", 0.32))
        is_wide = room.width >= STEP_BESIDE_WIDTH and (room.kind != "trace" or variants)
        history = beside if is_wide else (("history", 1.0),)
        # Before its first window, there is nothing else to see of a server.
        alone = room.kind == "trace" and not room.wanted.get("timeline_top")
        rows = 12 if alone else 3 + (room.wanted.get("history") or 1)
        bands.append(Band(history, edge + 2, edge + rows, 6, 1, edge + 2))
    elif variants:
        rows = variants + edge
        bands.append(Band((("variants", 1.0),), min(rows, edge + 3), rows, 9, 1))
    answer = max(room.wanted.get("answer", _SOME_ANSWER), 1)
    least = edge + min(answer, _LEAST_ANSWER)
    some = edge + min(answer, _SOME_ANSWER)
    bands.append(Band((("answer", 1.0),), least, edge + answer, 1, 60, some))
    tracks = edge + room.wanted.get("timeline_top", _SOME_TRACKS)
    few = min((5 if box else 4) + edge, tracks)
    if tracks > edge:
        lettered = min(few + (not room.color), tracks)
        bands.append(Band((("timeline_top", 1.0),), few, tracks, 5, 1, lettered))
    if room.wanted.get("text"):
        bands.append(Band((("text", 1.0),), edge + 1, edge + 12, 8, 3))
    return bands


def one_panel(name: str, least: int, comfort: int, most: int) -> Callable[[Room], list[Band]]:
    """One panel takes every row up to `most`; below it are the details, where it keeps `least`."""

    def bands(room: Room) -> list[Band]:
        edge = edge_rows(room.frame)
        return [Band(((name, 1.0),), edge + least, edge + most, 1, 3, edge + comfort)]

    return bands


def gap_bands(room: Room) -> list[Band]:
    """The classes take the rows that they need, at most a third; the list takes the others."""
    edge = edge_rows(room.frame)
    wanted = room.wanted.get("gap_classes", 6) + edge
    classes = max(min(wanted, room.height // 3), edge + 3)
    return [
        Band((("gap_classes", 1.0),), edge + 3, classes, 2, 1, classes),
        Band((("gap_list", 1.0),), edge + 3, edge + 400, 1, 9),
    ]


def limit_bands(room: Room) -> list[Band]:
    """The roofline, with the details of the chosen kernel beside it where there is room."""
    beside: Shares = (("roofline", 0.66), ("details", 0.34))
    has_details = room.width >= _DETAILS_BESIDE_WIDTH and room.wanted.get("details")
    roofline = beside if has_details else (("roofline", 1.0),)
    edge = edge_rows(room.frame)
    return [Band(roofline, edge + 1, edge + 400, 1, 1)]


def comparison_bands(room: Room) -> list[Band]:
    """Choices and results first; what a result is made of once there is one."""
    edge, wanted = edge_rows(room.frame), room.wanted
    bands = []
    if status := wanted.get("ab_status", 0):
        bands.append(Band((("ab_status", 1.0),), 1, min(status, _STATUS_ROWS), 2, 1, 2))
    setup, sides = wanted.get("ab_setup", 1), wanted.get("ab_sides", 0)
    few, some = edge + min(setup, 3), edge + min(setup, 5)
    bands.append(Band((("ab_setup", 1.0),), few, edge + setup, 4, 2, some))
    bands += _rank_bands(room, edge)
    if sides:
        few, some = edge + min(sides, 3), edge + min(sides, 8)
        bands.append(Band((("ab_sides", 1.0),), few, edge + sides, 1, 3, some))
    steps = wanted.get("ab_steps", 0)
    tables = [name for name in _TABLES_OF_CHANGES if wanted.get(name)]
    rows = {name: max(edge + 1 + wanted[name], edge + 3) for name in tables}
    beside = room.width >= COMPARISON_BESIDE_WIDTH and len(tables) > 1
    alone = tables[:-2] if beside else tables
    lines = [(name,) for name in alone] + ([tuple(tables[-2:])] if beside else [])
    for place, names in enumerate(lines):
        share = tuple((name, 1 / len(names)) for name in names)
        comfort = edge + 6 if len(names) > 1 else edge + 4
        most = max(rows[name] for name in names)
        # Beside the steps, a table that is read comes before one that has room for two rows.
        least = edge + (3 if place or not steps else _SOME_PARTS)
        priority = 6 + place + bool(place)
        bands.append(Band(share, least, max(most, least), priority, 5 - place, max(comfort, least)))
    if steps:
        place = len(bands) - len(lines)
        bands.insert(place, Band((("ab_steps", 1.0),), edge + steps, edge + steps, 7))
    return bands


def _rank_bands(room: Room, edge: int) -> list[Band]:
    """The tables of ranks or GPUs that wait; they go first where a result needs the room."""
    wanted = {name: room.wanted.get(name, 0) for name in _TABLES_OF_RANKS}
    shown = [name for name in _TABLES_OF_RANKS if wanted[name]]
    if room.width >= COMPARISON_BESIDE_WIDTH and len(shown) > 1:
        rows = edge + max(wanted.values())
        share = tuple((name, 1 / len(shown)) for name in shown)
        return [Band(share, edge + 2, rows, 9, 1, min(rows, edge + 6))]
    bands = []
    for place, name in enumerate(shown):
        some = edge + min(wanted[name], 5)
        bands.append(Band(((name, 1.0),), edge + 2, edge + wanted[name], 9 + place, 1, some))
    return bands


def file_bands(room: Room) -> list[Band]:
    """The path field above the table, which takes every other row."""
    edge = edge_rows(room.frame)
    return [
        Band((("path", 1.0),), edge + 2, edge + 3, 1, 1),
        Band((("files", 1.0),), edge + 3, edge + 200, 2, 3),
    ]


_STEP = (
    "answer:AnswerPanel",
    "live_run:ServersPanel,HistoryPanel,VariantsPanel",
    "step_timeline:StepTimelinePanel",
    "live_run:TextPanel",
)
_LIMIT = ("roofline:RooflinePanel",)
_COMPARISON = (
    "comparing.setup:ComparisonSetupPanel",
    "comparing.status:ComparisonStatusPanel",
    "comparing.tables:WaitingGpusPanel,CollectivesPanel,SkewPanel,ComparisonSidesPanel",
    "comparing.steps:ComparisonStepsPanel",
    "comparing.tables:ComparisonStepPanel,ComparisonRangesPanel,ComparisonKernelsPanel",
)
_TIMELINE = ("timeline.timeline_panel:TimelinePanel",)
_KERNELS = ("kernels:KernelTablePanel",)
_GAPS = ("gap_list:GapListPanel", "gap_classes:GapClassesPanel")
_RANGES = ("range_tree:RangeTreePanel",)
_LOG = ("log_table:LogTablePanel",)
PAGES = (
    Page("step", "1", "Step", _STEP, step_bands, details=False),
    Page("timeline", "2", "Timeline", _TIMELINE, one_panel("timeline", 4, 11, 200)),
    Page("kernels", "3", "Kernels", _KERNELS, one_panel("kernels", 7, 9, 200)),
    Page("gaps", "4", "Gaps", _GAPS, gap_bands),
    Page("ranges", "5", "Ranges", _RANGES, one_panel("range_tree", 6, 6, 400)),
    Page("limit", "6", "Limit", _LIMIT, limit_bands, details=False),
    Page(COMPARISON_PAGE, "7", "A/B", _COMPARISON, comparison_bands, details=False),
    Page("files", "8", "Files", ("files:PathPanel,FilesPanel",), file_bands, details=False),
    Page(LOG_PAGE, "9", "Log", _LOG, one_panel("log", 2, 2, 400), details=False),
)


def import_panels() -> None:
    for page in PAGES:
        page.panels()
