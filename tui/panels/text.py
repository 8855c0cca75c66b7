"""The generated text, and how text is wrapped."""

import re
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from decodescope.analyzer.plain import plain_text
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Empty, Panel, Row, Sheet

TITLE = "Generated text"


@dataclass(frozen=True, slots=True)
class TextData:
    text: str
    note: str


class TextPanel(Panel[TextData]):
    """The text as it is generated; follows its end. Without a tokenizer it wants no rows."""

    NAME = "text"

    def pick(self, view: View, moment: Moment) -> TextData | Empty:
        stats = view.stats
        if stats is None or not stats.text:
            return Empty(TITLE, "")
        return TextData(stats.text, f"generation {stats.round} · position {stats.position:,}")

    def wanted_rows(self, width: int) -> int | None:
        return 0 if isinstance(self._data, Empty) else 1

    def draw(self, data: TextData, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        rows = [Row().add(line, inks.text) for line in wrapped_tail(data.text, width, height)]
        if rows and rows[-1].cells < width:
            rows[-1].add("▌", inks.accent)
        return Sheet(rows, TITLE, data.note)


def wrapped_tail(text: str, width: int, height: int) -> list[str]:
    """The last `height` lines of `text` wrapped to `width` cells, with visible control characters.

    Words longer than a line are cut; a line keeps its indentation.
    """
    if width < 1 or height < 1:
        return []
    tail = plain_text(text[-(width * height * 2 + 200) :])
    lines: list[str] = []
    for line in tail.split("\n"):
        lines.extend(wrapped(line, width))
    return lines[-height:]


def wrapped(line: str, width: int) -> list[str]:
    """`line` broken between words into lines of at most `width` cells."""
    lines, current = [], ""
    # The first word keeps its indentation, and each word the spaces after it.
    for word in re.findall(r" *[^ ]+ *", line) or [line]:
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
