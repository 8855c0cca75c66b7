"""The header: what a viewer reads first, large where there is room."""

from dataclasses import dataclass
from typing import Literal

from rich.style import Style

from decodescope.tui.formatting import UNKNOWN
from decodescope.tui.glyphs import big, big_width
from decodescope.tui.panels.panel import Panel, Row, Sheet

Tone = Literal["lead", "plain", "warn", "stale"]

_SIDE_CELLS = 21


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
        figures = (*self._data.main, *self._data.side)
        if height >= 4 and width < 80:
            half = (len(figures) + 1) // 2
            return Sheet("", "", self._band(figures[:half], width, half)
                         + self._band(figures[half:], width, half))  # fmt: skip
        return Sheet("", "", self._band(figures, width, len(figures)))

    def _style(self, figure: Figure) -> Style:
        inks = self._brush.inks
        if figure.text == UNKNOWN:
            return inks.faint
        tones = {"lead": inks.accent, "warn": inks.warn, "stale": inks.dim, "plain": inks.strong}
        return tones[figure.tone]

    def _band(self, figures: tuple[Figure, ...], width: int, slots: int) -> list[Row]:
        labels, values = Row(), Row()
        for index, figure in enumerate(figures):
            start = 1 + index * max(width - 1, 0) // slots
            end = 1 + (index + 1) * max(width - 1, 0) // slots
            labels.to(start).left(figure.short, max(end - start - 1, 1), self._brush.inks.dim)
            bold = self._style(figure) + Style(bold=figure.text != UNKNOWN)
            values.to(start).left(figure.text, max(end - start - 1, 1), bold)
        return [labels, values]

    def _large(self, width: int) -> list[Row]:
        inks = self._brush.inks
        rows = [Row() for _ in range(4)]
        main_width = max(width - _SIDE_CELLS - 2, 0)
        slots = len(self._data.main)
        for index, figure in enumerate(self._data.main):
            start, end = index * main_width // slots, (index + 1) * main_width // slots
            rows[0].to(start).left(figure.label, end - start - 1, inks.dim)
            for row, piece in zip(rows[1:], self._digits(figure.text, end - start - 1),
                                  strict=True):  # fmt: skip
                row.to(start).add(piece, self._style(figure))
        for row, figure in zip(rows, self._data.side, strict=False):
            row.to(main_width).add("│ ", inks.border)
            row.left(figure.short, 9, inks.dim)
            row.right(figure.text, _SIDE_CELLS - 9, self._style(figure))
        return rows

    def _digits(self, text: str, cells: int) -> tuple[str, str, str]:
        if self._brush.glyphs.big_digits:
            if big_width(text) <= cells:
                return big(text)
            if big_width(text.replace(",", "")) <= cells:
                return big(text.replace(",", ""))
        return "", text[:cells], ""
