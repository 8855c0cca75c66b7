"""The plain panels: verdict, generated text, log, banner, and the line of keys."""

import textwrap
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len, chop_cells
from rich.style import Style

from decodescope.analyzer.formatting import plain_text, shorten
from decodescope.tui.model.session import LogLine
from decodescope.tui.panels.panel import Panel, Row, Sheet

BAR = "▌ "
BAR_CELLS = len(BAR)
HINT_GAP = "   "

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class VerdictData:
    """`label` is "launch-bound", …; empty while there is no verdict, then `reason` says why."""

    label: str
    reason: str
    bad: bool = False


class VerdictPanel(Panel[VerdictData]):
    """The answer in one line, or two."""

    FRAMED = False

    def draw(self, width: int, height: int) -> Sheet:
        inks, data = self._brush.inks, self._data
        row = Row().add(" ", inks.text)
        if data.label:
            row.add(f" {data.label} ", inks.chip(inks.warn if data.bad else inks.good))
            row.add(" ", inks.text)
        style, room = inks.text if data.label else inks.dim, max(width - row.cells - 1, 0)
        if height < 2:
            return Sheet("", "", [row.left(data.reason, room, style)])
        first, *rest = _wrapped(data.reason, max(room, 1))
        below = Row().to(row.cells).left(" ".join(rest), room, style)
        return Sheet("", "", [row.add(first, style), below])


@dataclass(frozen=True, slots=True)
class TextData:
    title: str
    note: str
    text: str
    hint: str


def wrapped_tail(text: str, width: int, height: int) -> list[str]:
    """The last `height` lines of `text` soft-wrapped to `width` cells, control characters shown.

    Words longer than a line are cut; a line keeps its indentation.
    """
    if width < 1 or height < 1:
        return []
    tail = plain_text(text[-(width * height * 2 + 200) :])
    lines: list[str] = []
    for line in tail.split("\n"):
        lines.extend(_wrapped(line, width))
    return lines[-height:]


def _wrapped(line: str, width: int) -> list[str]:
    lines, current = [], ""
    for word in _words(line):
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


def _words(line: str) -> list[str]:
    words, start = [], 0
    for index in range(1, len(line)):
        if line[index] != " " and line[index - 1] == " " and line[start:index].strip():
            words.append(line[start:index])
            start = index
    words.append(line[start:])
    return words


class TextPanel(Panel[TextData]):
    """The text as it appears, following its end."""

    def draw(self, width: int, height: int) -> Sheet:
        data, inks = self._data, self._brush.inks
        if not data.text:
            lines = wrapped_tail(data.hint, width, height)
            return Sheet(data.title, data.note, [Row().add(line, inks.faint) for line in lines])
        lines = wrapped_tail(data.text, width, height)
        rows = [Row().add(line, inks.text) for line in lines]
        if rows and rows[-1].cells < width:
            rows[-1].add("▌", inks.accent)
        return Sheet(data.title, data.note, rows)


class LogPanel(Panel[tuple[LogLine, ...]]):
    """The last lines of the log, newest at the bottom."""

    FRAMED = False

    def draw(self, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        styles = {"info": inks.dim, "warning": inks.warn, "error": inks.bad}
        rows = [Row() for _ in range(height - len(self._data))]
        for line in self._data[-height:]:
            prefix = "" if line.level == "info" else f"{line.level}: "
            text = " ".join(plain_text(line.text).split())
            rows.append(Row().left(f" {prefix}{text}", width, styles[line.level]))
        return Sheet("", "", rows)


@dataclass(frozen=True, slots=True)
class Banner:
    """Something that needs attention: a headline, details, and what can be done about it."""

    severity: Severity
    headline: str
    details: tuple[str, ...] = ()
    hint: str = ""

    def headlines(self, width: int) -> list[str]:
        """The headline, wrapped into `width` cells beside the bar."""
        return textwrap.wrap(plain_text(self.headline), max(width - BAR_CELLS, 1)) or [""]

    def hint_has_own_row(self, width: int) -> bool:
        """Whether the hint needs a row: under details, or where the headline leaves no room."""
        beside = len(self.headlines(width)[-1]) + len(HINT_GAP) + len(self.hint)
        return bool(self.hint) and (bool(self.details) or beside > width - BAR_CELLS)

    def rows(self, width: int, height: int) -> int:
        """Rows it wants on a screen of this size: at most a quarter of the height, at least one."""
        wanted = len(self.headlines(width)) + len(self.details) + self.hint_has_own_row(width)
        return max(1, min(wanted, height // 4))


class BannerPanel(Panel[Banner | None]):
    """A coloured block; where rows are short the oldest details go first, then the headline's end.

    On a single row the hint is cut off with the headline.
    """

    FRAMED = False

    def draw(self, width: int, height: int) -> Sheet:
        banner, inks = self._data, self._brush.inks
        if banner is None:
            return Sheet("", "", [])
        ink = {"error": inks.bad, "warning": inks.warn, "info": inks.accent}[banner.severity]
        room = max(width - BAR_CELLS, 0)
        own_hint = banner.hint_has_own_row(width) and height > 1
        headlines = banner.headlines(width)
        if len(headlines) > (most := max(height - own_hint, 1)):
            last = " ".join(headlines[most - 1 :])
            headlines = [*headlines[: most - 1], shorten(last, room)]
        rows = [Row().add(BAR, ink).left(line, room, ink) for line in headlines[:-1]]
        last_row = Row().add(BAR, ink).add(headlines[-1], ink)
        if banner.hint and not own_hint:
            last_row.left(HINT_GAP + banner.hint, max(width - last_row.cells, 0), inks.dim)
        rows.append(last_row)
        left = max(height - len(rows) - own_hint, 0)
        for detail in banner.details[len(banner.details) - left :] if left else ():
            text = " ".join(plain_text(detail).split())
            rows.append(Row().add(BAR, ink).left(text, room, inks.dim))
        if own_hint:
            rows.append(Row().add(BAR, ink).left(banner.hint, room, inks.text))
        return Sheet("", "", rows)


@dataclass(frozen=True, slots=True)
class KeyHint:
    """A key, what it does, and the app's action; those of high `priority` go first."""

    key: str
    label: str
    action: str
    priority: int


def fitting_keys(hints: tuple[KeyHint, ...], width: int) -> tuple[KeyHint, ...]:
    """As many hints as fit in `width` cells, least important left out, order kept."""
    kept = list(hints)
    while kept and sum(len(hint.key) + len(hint.label) + 3 for hint in kept) > width:
        kept.remove(max(kept, key=lambda hint: hint.priority))
    return tuple(kept)


class KeysPanel(Panel[tuple[KeyHint, ...]]):
    """The footer; each key can be clicked."""

    FRAMED = False

    def draw(self, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        for hint in fitting_keys(self._data, width - 1):
            click = Style.from_meta({"@click": hint.action})
            row.add(hint.key, inks.key + click)
            row.add(f" {hint.label}", inks.dim + click).add("  ", inks.text)
        return Sheet("", "", [row])
