"""Names cut to a width; ranges below the one they are in."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from decodescope.analyzer.schema.report import RangeReport
from decodescope.analyzer.text.plain import plain_line


def cut_start(text: str, cells: int) -> str:
    """`text` as `plain_line` in at most `cells` cells: an ellipsis replaces its start."""
    shown = text = plain_line(text)
    kept = cells
    while cell_len(shown) > cells:
        kept -= 1
        shown = f"…{text[len(text) - kept :]}" if kept >= 0 else ""
    return shown


def cut_middle(text: str, cells: int) -> str:
    """`text` as `plain_line` in at most `cells` cells: an ellipsis replaces its middle."""
    shown = text = plain_line(text)
    kept = cells = max(cells, 0)
    while cell_len(shown) > cells:
        kept -= 1
        tail = kept // 3
        shown = f"{text[: kept - tail]}…{text[len(text) - tail :]}" if kept >= 0 else ""
    return shown


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One range at its `depth` below the outermost; `label` is its path below its parent row,
    `parent` says whether child rows follow."""

    depth: int
    label: str
    parent: bool
    found: RangeReport


def range_rows(ranges: Sequence[RangeReport]) -> list[RangeRow]:
    """The ranges as rows of a tree, in their order: a range follows the one that contains it."""
    rows: list[RangeRow] = []
    open_paths: list[str] = []
    for place, found in enumerate(ranges):
        while open_paths and not found.path.startswith(open_paths[-1]):
            open_paths.pop()
        label = found.path[len(open_paths[-1]) :] if open_paths else found.path
        following = ranges[place + 1].path if place + 1 < len(ranges) else ""
        parent = following.startswith(found.path + "/")
        rows.append(RangeRow(len(open_paths), label, parent, found))
        open_paths.append(found.path + "/")
    return rows
