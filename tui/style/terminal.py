"""What the terminal can show, and a filter that replaces non-ASCII glyphs."""

from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_FROM = (
    "\u2013\u2014\u2212…·•µ\u00d7±▸▶◂●○■◆▲▼→←↑↓✓✕⚠┆▁▂▃▄▅▆▇█▔▏▎▍▌▋▊▉▐░"
    "\u2018\u2019\u201c\u201d\u00a0≤≥≈÷"
)
_TO = "---~|*ux~>><*o#*^v><^vvx!:.:-=+*%@-||||||||.''\"\" <>~/"
_TABLE = str.maketrans(_FROM, _TO)


@dataclass(frozen=True, slots=True)
class TerminalTraits:
    """`unicode`: the terminal shows UTF-8. `color`: colours are wanted (NO_COLOR is not set).

    The app receives them instead of guessing, so tests can fix both.
    """

    unicode: bool = True
    color: bool = True


def _fallback(char: str) -> str:
    if char < "\x80":
        return char
    if "\u2500" <= char <= "\u257f":
        return "-" if char in "─━╌╍┄┅┈┉═╴╶╸╺" else "|" if char in "│┃╎╏┆┇┊┋║╵╷╹╻" else "+"
    return "?" * cell_len(char)


def to_ascii(text: str) -> str:
    """`text` in ASCII, with the same number of terminal cells."""
    if text.isascii():
        return text
    return "".join(_fallback(char) for char in text.translate(_TABLE))


class AsciiFilter(LineFilter):
    """Replaces the non-ASCII glyphs of every widget's lines."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments with ASCII text; `background` is unused."""
        return [Segment(to_ascii(text), style, control) for text, style, control in segments]
