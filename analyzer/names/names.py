"""Names short enough to read: kernels without their templates, ranges below the one they are in."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len

from decodescope.analyzer.names.mangled import readable_kernel
from decodescope.analyzer.schema.report import RangeReport
from decodescope.analyzer.text.plain import plain_line

NOISE = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\bat::native::|\bat::|\bc10::|^void ")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_TELLING = re.compile(r"(_kernel_cuda|_kernel|_kernel_impl|Functor\w*|Ops?)$")
_GENERIC = frozenset(
    {
        "gpu_kernel_impl",
        "gpu_kernel_impl_nocast",
        "opmath_gpu_kernel_with_scalars",
        "BinaryFunctor",
        "AUnaryFunctor",
        "BUnaryFunctor",
        "CompareFunctor",
        "ReduceOp",
    }
)


def shorten_kernel(name: str, cells: int) -> str:
    """`name` as `readable_kernel` in at most `cells` cells of a terminal.

    If it does not fit, these are dropped in turn: return type, common namespaces and parameters;
    template arguments except the functor that distinguishes elementwise kernels; the middle.
    """
    forms = _forms(name)
    fitting = next((form for form in forms if cell_len(form) <= cells), None)
    return cut_middle(forms[-1], cells) if fitting is None else fitting


@lru_cache(maxsize=512)
def _forms(name: str) -> tuple[str, ...]:
    """The forms of a name, the longest first; they do not depend on the width."""
    name = readable_kernel(name)
    base, template = _split(NOISE.sub("", name))
    if not template:
        return name, base
    whole = f"{base}<{template}>"
    functor = _telling_identifier(template)
    return (name, whole, f"{base}<…{functor}…>") if functor else (name, whole)


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


def _split(name: str) -> tuple[str, str]:
    """The name before its template arguments, and the arguments without their brackets."""
    depth, opened = 0, -1
    for position, character in enumerate(name):
        if character == "(" and depth == 0:
            return name[:position].strip() or name, ""
        if character == "<":
            if depth == 0:
                opened = position
            depth += 1
        elif character == ">" and depth > 0:
            depth -= 1
            if depth == 0:
                return name[:opened], name[opened + 1 : position].strip()
    return name, ""


def _telling_identifier(template: str) -> str | None:
    for identifier in _IDENTIFIER.findall(template):
        if _TELLING.search(identifier) and identifier not in _GENERIC:
            return str(identifier)
    return None


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
