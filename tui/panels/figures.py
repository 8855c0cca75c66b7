"""The header: what a viewer reads first, large where there is room."""

from dataclasses import dataclass
from typing import Literal

from rich.style import Style

from decodescope.analyzer.formatting import UNKNOWN
from decodescope.tui.panels.panel import Panel, Row, Sheet
from decodescope.tui.style.glyphs import big, big_width

Tone = Literal["lead", "plain", "warn", "stale"]

_SIDE_CELLS = 21
_MIN_CELLS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: a long and a short label (unit included), its text, and how it is toned."""

    label: str
    short: str
    text: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class FiguresData:
    """`main` figures are drawn large, `side` ones small; `note` says where they come from."""

    main: tuple[Figure, ...]
    side: tuple[Figure, ...]
    note: str = ""


class FiguresPanel(Panel[FiguresData]):
    """Big digits in a box, or a label above each figure, in one or two bands."""

    @property
    def FRAMED(self) -> bool:  # type: ignore[override]
        """Boxed on large screens only."""
        return self._brush.frame == "box"

    def draw(self, width: int, height: int) -> Sheet:
        if self._brush.frame == "box":
            return Sheet("Decode step", self._data.note, self._large(width))
        main, side = self._data.main, self._data.side
        figures = (*main[:2], *side[:1], *main[2:], *side[1:])
        if height >= 4 and width < 80:
            half = (len(figures) + 1) // 2
            return Sheet("", "", self._band(figures[:half], width)
                         + self._band(figures[half:], width))  # fmt: skip
        return Sheet("", "", self._band(figures, width))

    def _style(self, figure: Figure) -> Style:
        inks = self._brush.inks
        if figure.text == UNKNOWN:
            return inks.faint
        tones = {"lead": inks.accent, "warn": inks.warn, "stale": inks.dim, "plain": inks.strong}
        return tones[figure.tone]

    def _band(self, figures: tuple[Figure, ...], width: int) -> list[Row]:
        labels, values = Row(), Row()
        least = [max(len(figure.short), len(figure.text), _MIN_CELLS) for figure in figures]
        spare = max(width - 2 - sum(least), 0) / max(len(figures), 1)
        start = 1.0
        for figure, cells in zip(figures, least, strict=True):
            labels.to(round(start)).add(figure.short, self._brush.inks.dim)
            bold = self._style(figure) + Style(bold=figure.text != UNKNOWN)
            values.to(round(start)).add(figure.text, bold)
            start += cells + max(spare, 1.0)
        return [labels, values]

    def _large(self, width: int) -> list[Row]:
        inks = self._brush.inks
        rows = [Row() for _ in range(4)]
        main_width = max(width - _SIDE_CELLS - 2, 0)
        slots = len(self._data.main)
        for index, figure in enumerate(self._data.main):
            start, end = index * main_width // slots, (index + 1) * main_width // slots
            label = figure.label if len(figure.label) < end - start else figure.short
            rows[0].to(start).left(label, end - start - 1, inks.dim)
            pieces = self._digits(figure.text, end - start - 1, figure.tone == "lead")
            for row, piece in zip(rows[1:], pieces, strict=True):
                row.to(start).add(piece, self._style(figure))
        for row, figure in zip(rows, self._data.side, strict=False):
            row.to(main_width).add("│ ", inks.border)
            row.left(figure.short, 9, inks.dim)
            row.right(figure.text, _SIDE_CELLS - 9, self._style(figure))
        return rows

    def _digits(self, text: str, cells: int, bold: bool) -> tuple[str, str, str]:
        if self._brush.glyphs.big_digits:
            if big_width(text) <= cells:
                return big(text, bold)
            if big_width(text.replace(",", "")) <= cells:
                return big(text.replace(",", ""), bold)
        return "", text[:cells], ""
