"""The list of ranges as rows of a tree."""

from collections.abc import Sequence
from dataclasses import dataclass

from decodescope.analyzer.schema.report import RangeReport


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One range at its `depth` below the outermost; `label` is its path below the row above it that
    holds it, `parent` says whether rows of its own follow."""

    depth: int
    label: str
    parent: bool
    found: RangeReport


def range_rows(ranges: Sequence[RangeReport]) -> list[RangeRow]:
    """Rows in the order of `ranges`, in which a range follows the one it lies in."""
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
