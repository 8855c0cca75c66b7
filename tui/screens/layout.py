"""Places a screen's panels for a terminal size: a pure function, so every size can be tested.

Panels are dropped by priority; none gets fewer rows than it needs.
"""

from dataclasses import dataclass, replace

from decodescope.tui.panels.panel import Frame

BOX_MIN_HEIGHT = 34
BOX_MIN_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A panel's cells: its top left corner and its size, all non-negative."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where each visible panel is; a panel missing from `places` is hidden."""

    frame: Frame
    places: dict[str, Place]


@dataclass(frozen=True, slots=True)
class Band:
    """Panels side by side, each with its share of the width.

    The band gets `least` rows, then up to `comfort`, then up to `most` in proportion to `appetite`.
    Bands of high `priority` are dropped first.
    """

    panels: tuple[tuple[str, float], ...]
    least: int
    most: int
    priority: int
    appetite: int = 0
    comfort: int = 0


def line(panel: str, priority: int) -> Band:
    """A band of one panel that takes one row."""
    return Band(((panel, 1.0),), 1, 1, priority)


def frame_for(width: int, height: int) -> Frame:
    """Boxes on large screens, rules on small ones."""
    return "box" if height >= BOX_MIN_HEIGHT and width >= BOX_MIN_WIDTH else "rule"


def edge_rows(frame: Frame) -> int:
    """The rows that a panel's frame takes."""
    return 2 if frame == "box" else 1


def _share(rows: list[Band], spare: int) -> list[int]:
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


def plan(bands: list[Band], width: int, height: int, banner: int = 0) -> Plan:
    """Place a screen's `bands` on `width` x `height` cells, from top to bottom.

    Every screen has the title and the keys around them; `banner` is the number of rows a banner
    needs below the title, 0 without one.
    """
    rows = [line("title", 0), *bands, line("keys", 2)]
    if banner:
        rows.insert(1, Band((("banner", 1.0),), banner, banner, 1))
    while rows and sum(row.least for row in rows) > height:
        rows.remove(max(rows, key=lambda row: row.priority))
    heights = _share(rows, height - sum(row.least for row in rows))
    places: dict[str, Place] = {}
    y = 0
    for row, rows_high in zip(rows, heights, strict=True):
        x, total = 0, 0.0
        for name, share in row.panels:
            total += share
            right = round(total * width)
            if right > x:
                places[name] = Place(x, y, right - x, rows_high)
            x = right
        y += rows_high
    for name in ("log", "keys"):
        # Rows left over stay above the bottom lines.
        if name in places:
            places[name] = replace(places[name], y=places[name].y + height - y)
    return Plan(frame_for(width, height), places)
