"""The drawing of a panel: rows of styled text on a sheet, and text broken into lines of a width."""

import re
from dataclasses import dataclass
from typing import Literal, Self

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from decodescope.analyzer.text.plain import plain_line, plain_text
from decodescope.tui.style.palette import Glyphs, Inks

Frame = Literal["box", "rule"]
# A line of text, or the cells of a row.
TextLine = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Brush:
    """The means that panels draw with: styles, glyphs and the kind of frame."""

    inks: Inks
    glyphs: Glyphs
    frame: Frame = "box"


class Row:
    """One line of a panel, built from left to right; widths are in terminal cells.

    Every text that a panel shows goes through a row, which writes it as `plain_line`.
    """

    __slots__ = ("cells", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.cells = 0

    def add(self, text: str, style: Style) -> Self:
        text = plain_line(text)
        if text:
            self.segments.append(Segment(text, style))
            self.cells += cell_len(text)
        return self

    def plain(self, text: str, cells: int, style: Style) -> Self:
        """Append text that is known to be plain and to take so many cells."""
        self.segments.append(Segment(text, style))
        self.cells += cells
        return self

    def to(self, column: int) -> Self:
        if column > self.cells:
            self.add(" " * (column - self.cells), Style.null())
        return self

    def left(self, text: str, cells: int, style: Style) -> Self:
        """Append `text` cut or padded to exactly `cells`."""
        text = plain_line(text)
        if cells > 0:
            if cell_len(text) > cells:
                text = set_cell_size(text, cells - 1) + "…"
            self.add(set_cell_size(text, cells), style)
        return self

    def right(self, text: str, cells: int, style: Style) -> Self:
        """Append `text` right-aligned in `cells`."""
        text = plain_line(text)
        if cells > 0:
            self.left(text.rjust(cells) if cell_len(text) <= cells else text, cells, style)
        return self

    def row(self, other: "Row", cells: int) -> Self:
        """Append another row cut or padded to exactly `cells`."""
        self.segments.extend(Strip(other.segments, other.cells).adjust_cell_length(cells))
        self.cells += cells
        return self

    def strip(self, width: int, style: Style) -> Strip:
        """The row cut or padded to exactly `width` cells, drawn over `style`."""
        return Strip(self.segments, self.cells).adjust_cell_length(width).apply_style(style)


@dataclass(slots=True)
class Sheet:
    """A drawn panel: its rows, its title, and a note at the right end of the frame."""

    rows: list[Row]
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """Shown instead of data: `hint` says why there is none."""

    title: str
    hint: str
    note: str = ""


def wrapped_tail(text: str, width: int, height: int) -> list[str]:
    """The last `height` lines of `text`, wrapped to `width` cells; control characters show."""
    if width < 1 or height < 1:
        return []
    tail = plain_text(text[-(width * height * 2 + 200) :])
    lines = [piece for line in tail.split("\n") for piece in wrapped(line, width)]
    return lines[-height:]


# A figure and its unit are one. The first word keeps its indentation, and each word the spaces
# after it.
_WORD = re.compile(
    r" *(?:[\d.,]*\d (?=(?:[nµm]?s|%|[kMGT]?B(?:/s)?|[kMGTP]?FLOPs?(?:/s)?)(?![\w/])))?[^ ]+ *"
)


def wrapped(line: str, width: int) -> list[str]:
    """`line` broken between words into lines of at most `width` cells."""
    lines, current = [], ""
    for word in _WORD.findall(line) or [line]:
        if current and cell_len(current) + cell_len(word.rstrip()) > width:
            lines.append(current.rstrip())
            current = word.lstrip()
        else:
            current += word
        if cell_len(current.rstrip()) > width:
            *full, current = chop_cells(current, width)
            lines.extend(full)
    lines.append(current.rstrip())
    return lines
