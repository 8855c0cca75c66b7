"""The generated text."""

from dataclasses import dataclass

from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.panel import Panel
from decodescope.tui.panels.sheet import Empty, Row, Sheet, wrapped_tail

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
