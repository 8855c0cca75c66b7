"""Which panel stands where at a terminal size: a pure function, so every size can be tested.

Panels are dropped by priority, never squeezed below what they need to say something true.
"""

from dataclasses import dataclass
from typing import Literal

Frame = Literal["box", "rule"]

BOX_MIN_HEIGHT = 34
BOX_MIN_WIDTH = 100
SIDE_BY_SIDE_WIDTH = 76


@dataclass(frozen=True, slots=True)
class Place:
    """A panel's cells: `x`, `y` of its top left corner, its size, all non-negative."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each visible panel stands; a panel that is not in `places` is hidden."""

    frame: Frame
    places: dict[str, Place]


@dataclass(frozen=True, slots=True)
class _Row:
    """A band of panels side by side: at `least` so many rows, then up to `comfort`, then up to
    `most` by `appetite`; bands of high `priority` are dropped first."""

    panels: tuple[tuple[str, float], ...]
    least: int
    most: int
    priority: int
    appetite: int = 0
    comfort: int = 0


def figure_rows(width: int, frame: Frame) -> int:
    """Rows that the header figures take inside their frame."""
    if frame == "box":
        return 4
    return 2 if width >= 80 else 4


def _rows(width: int, frame: Frame, banner: int, timeline_extra: int, text: bool) -> list[_Row]:
    edge = 2 if frame == "box" else 1
    wide = width >= SIDE_BY_SIDE_WIDTH
    figures = figure_rows(width, frame) + (edge if frame == "box" else 0)
    timeline = (5 if frame == "box" else 4) + edge + timeline_extra
    spark: tuple[tuple[str, float], ...] = (("spark", 1.0),)
    if wide:
        spark = (("spark", 0.68), ("variants", 0.32))
    tables: tuple[tuple[str, float], ...] = (("kernels", 1.0),)
    if width >= 160 and frame == "box" and text:
        tables = (("kernels", 0.36), ("gaps", 0.34), ("text", 0.30))
    elif wide:
        tables = (("kernels", 0.52), ("gaps", 0.48))
    rows = [
        _Row((("title", 1.0),), 1, 1, 0),
        _Row((("figures", 1.0),), figures, figures, 1),
        _Row((("verdict", 1.0),), 1, 2 if width < 140 else 1, 3, 1),
        _Row(spark, edge + 2, edge + (2 if frame == "rule" else 6), 5, 1),
        _Row((("timeline", 1.0),), timeline, timeline, 4),
        _Row((("gaps", 1.0),), edge + 4, edge + 8, 6, 2) if not wide else None,
        _Row(tables, edge + 4, edge + 30, 7, 6, edge + 7),
        _Row((("text", 1.0),), edge + 1, edge + 12, 8, 3)
        if text and tables[-1][0] != "text"
        else None,
        _Row((("log", 1.0),), 1, 1 if frame == "rule" else 3, 9, 0),
        _Row((("keys", 1.0),), 1, 1, 2),
    ]
    kept = [row for row in rows if row is not None]
    if banner:
        kept.insert(1, _Row((("banner", 1.0),), banner, banner, 1))
    return kept


def _share(rows: list[_Row], spare: int) -> list[int]:
    heights = [row.least for row in rows]
    for index in sorted(range(len(rows)), key=lambda index: rows[index].priority):
        more = max(min(rows[index].comfort - heights[index], spare), 0)
        heights[index] += more
        spare -= more
    base = list(heights)
    while spare > 0:
        hungry = [i for i, row in enumerate(rows) if heights[i] < row.most and row.appetite]
        if not hungry:
            break
        chosen = min(hungry, key=lambda i: ((heights[i] - base[i]) / rows[i].appetite, i))
        heights[chosen] += 1
        spare -= 1
    return heights


def _columns(panels: tuple[tuple[str, float], ...], width: int) -> list[tuple[str, int, int]]:
    edges = [0]
    total = 0.0
    for _, share in panels:
        total += share
        edges.append(round(total * width))
    edges[-1] = width
    return [
        (name, left, right - left)
        for (name, _), left, right in zip(panels, edges, edges[1:], strict=False)
    ]


def plan(
    width: int, height: int, banner: int = 0, timeline_extra: int = 0, text: bool = True
) -> Plan:
    """Place the panels on `width` x `height` cells.

    `banner` is the number of rows a banner wants (0: there is none), `timeline_extra` rows are
    added to the timeline (the row of class letters where there are no colours), `text` says whether
    there can be generated text.
    """
    frame: Frame = "box" if height >= BOX_MIN_HEIGHT and width >= BOX_MIN_WIDTH else "rule"
    rows = _rows(width, frame, banner, timeline_extra, text)
    while rows and sum(row.least for row in rows) > height:
        rows.remove(max(rows, key=lambda row: row.priority))
    heights = _share(rows, height - sum(row.least for row in rows))
    places: dict[str, Place] = {}
    y = 0
    for row, rows_high in zip(rows, heights, strict=True):
        for name, x, columns in _columns(row.panels, width):
            if columns > 0:
                places[name] = Place(x, y, columns, rows_high)
        y += rows_high
    _sink(places, height - y)
    return Plan(frame, places)


def _sink(places: dict[str, Place], spare: int) -> None:
    """Keep the log and the keys at the bottom edge when rows are left over."""
    for name in ("log", "keys"):
        place = places.get(name)
        if place is not None and spare > 0:
            places[name] = Place(place.x, place.y + spare, place.width, place.height)
