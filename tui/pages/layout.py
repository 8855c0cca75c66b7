"""Places a page's panels for a terminal size: a pure function, so every size can be tested.

Panels are dropped by priority; none gets fewer rows than it needs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from decodescope.tui.model.view import Kind
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Frame

BOX_MIN_HEIGHT = 34
BOX_MIN_WIDTH = 100
DETAILS_BESIDE_WIDTH = 140
_DETAILS_SHARE = 0.30
_DETAILS_MAX_CELLS = 64
_DETAILS_ROWS = 6
_LAST = 99
_BOTTOM = ("playback", "keys")


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


@dataclass(frozen=True, slots=True)
class Room:
    """The facts that a page's bands depend on: the source, the cells for all bands, the frame of
    panels, whether colours tell classes apart, and the rows inside the frame that panels want, by
    name."""

    kind: Kind
    width: int
    height: int
    frame: Frame
    color: bool
    wanted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its number key, its `label` in the tabs, its panels, and the bands that place
    them from top to bottom. `details`: while something is selected, it has the details pane, beside
    the bands or below them.

    `classes` are those of its panels, after their module in `tui/panels`. The first panel that
    takes keys gets them when the page is opened.
    """

    name: str
    key: str
    label: str
    classes: tuple[str, ...]
    bands: Callable[[Room], list[Band]]
    details: bool = True

    def panels(self) -> list[type[Panel[Any]]]:
        """The classes of its panels, imported at the first call."""
        kinds: list[type[Panel[Any]]] = []
        for names in self.classes:
            module, _, classes = names.partition(":")
            panels = import_module(f"decodescope.tui.panels.{module}")
            kinds += [getattr(panels, name) for name in classes.split(",")]
        return kinds


def plan(
    page: Page, kind: Kind, size: tuple[int, int], wanted: Mapping[str, int], color: bool = True
) -> Plan:
    """Place a page on (width, height) cells: title, tabs, strip and keys are around every page,
    and the place of a replay.

    `wanted` are the rows that panels want (`Panel.wanted_rows`); `banner` and `details` are among
    them, 0 where there is nothing to show.
    """
    width, height = size
    frame: Frame = "box" if height >= BOX_MIN_HEIGHT and width >= BOX_MIN_WIDTH else "rule"
    top = [line("title", 0), line("tabs", 3), line("strip", 4)]
    if banner := wanted.get("banner", 0):
        top.insert(1, Band((("banner", 1.0),), banner, banner, 1))
    side, details = 0, page.details and bool(wanted.get("details"))
    if details and width >= DETAILS_BESIDE_WIDTH:
        side, details = min(round(width * _DETAILS_SHARE), _DETAILS_MAX_CELLS), False
    inner = max(height - sum(band.least for band in top) - 1, 0)
    bands = page.bands(Room(kind, width - side, inner, frame, color, wanted))
    if details:
        few = _DETAILS_ROWS + edge_rows(frame)
        bands = [*bands, Band((("details", 1.0),), few, 2 * few, _LAST, 1)]
    bottom = [line("keys", 2)] if kind != "replay" else [line("playback", 2), line("keys", 3)]
    rows = [*top, *bands, *bottom]
    while rows and sum(row.least for row in rows) > height:
        rows.remove(max(rows, key=lambda row: row.priority))
    heights = _share(rows, height - sum(row.least for row in rows))
    places, body = _placed(rows, heights, bands, width - side, size)
    if side and body and body[0] < body[1]:
        places["details"] = Place(width - side, body[0], side, body[1] - body[0])
    return Plan(frame, places)


def _placed(
    rows: list[Band], heights: list[int], bands: list[Band], inner: int, size: tuple[int, int]
) -> tuple[dict[str, Place], tuple[int, int] | None]:
    """Where each panel of `rows` is; `bands` take `inner` cells, the others the whole width. And
    the rows of the screen from the first band to the keys, None without a band."""
    width, height = size
    places: dict[str, Place] = {}
    first, y, end = None, 0, height
    for row, high in zip(rows, heights, strict=True):
        inside = row in bands
        if inside and first is None:
            first = y
        if row.panels[0][0] in _BOTTOM:
            # Rows left over stay above the bottom lines.
            y = max(y, height - sum(heights[rows.index(row) :]))
            end = min(end, y)
        x, total = 0, 0.0
        for name, share in row.panels:
            total += share
            right = round(total * (inner if inside else width))
            if right > x:
                places[name] = Place(x, y, right - x, high)
            x = right
        y += high
    return places, None if first is None else (first, end)
