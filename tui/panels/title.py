"""The top line: what runs, where, and in which state."""

from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from decodescope.analyzer.formatting import shorten
from decodescope.tui.panels.panel import Panel, Row, Sheet

Tone = Literal["good", "busy", "idle", "bad"]


@dataclass(frozen=True, slots=True)
class Badge:
    """A filled label."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class TitleData:
    """`facts` stand in falling importance; those that do not fit are left out from the end."""

    badges: tuple[Badge, ...]
    facts: tuple[str, ...]
    warned_facts: frozenset[str] = frozenset()


class TitlePanel(Panel[TitleData]):
    """Name, badges and facts on one line."""

    FRAMED = False

    def draw(self, width: int, height: int) -> Sheet:
        inks = self._brush.inks
        row = Row().add(" ", inks.text)
        badges = sum(cell_len(badge.text) + 3 for badge in self._data.badges)
        facts = sum(cell_len(fact) + 3 for fact in self._data.facts)
        if width >= badges + facts + 12 or not facts:
            row.add("decodescope ", inks.title)
        tones = {"good": inks.good, "busy": inks.warn, "idle": inks.dim, "bad": inks.bad}
        for badge in self._data.badges:
            text = shorten(badge.text, max(width - row.cells - 3, 4))
            row.add(f" {text} ", inks.chip(tones[badge.tone])).add(" ", inks.text)
        first = True
        for fact in self._data.facts:
            if row.cells + cell_len(fact) + (0 if first else 3) > width:
                break
            row.add("" if first else " · ", inks.faint)
            row.add(fact, inks.warn if fact in self._data.warned_facts else inks.text)
            first = False
        return Sheet("", "", [row])
