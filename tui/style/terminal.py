"""What the terminal can show, and a filter that replaces non-ASCII glyphs."""

from dataclasses import dataclass

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from decodescope.analyzer.views.ascii_text import to_ascii


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """`unicode`: the terminal shows UTF-8. `color`: colours are wanted (NO_COLOR is not set).
    `few_colors`: it has only sixteen.

    The app receives them instead of guessing, so tests can fix both.
    """

    unicode: bool = True
    color: bool = True
    few_colors: bool = False


class AsciiFilter(LineFilter):
    """Replaces the non-ASCII glyphs of every widget's lines."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments with ASCII text; `background` is unused."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
