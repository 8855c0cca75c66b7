"""Bars and big digits, in Unicode or in ASCII."""

from dataclasses import dataclass

from textual.renderables.digits import DIGITS, DIGITS3X3, DIGITS3X3_BOLD

_BIG_ROWS = 3


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`ramp[0]` is empty and `ramp[-1]` full; `unicode`: eighths of a cell and big digits exist."""

    ramp: str
    unicode: bool
    swatch: str
    pointer: str
    tick: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", True, "■", "▸", "▲")
ASCII = Glyphs(" .:-=+*#%@", False, "#", ">", "^")


def column(fraction: float, rows: int, glyphs: Glyphs) -> list[str]:
    """A vertical bar of `rows` cells, top cell first; any fraction above 0 is visible."""
    top = len(glyphs.ramp) - 1
    filled = min(rows * top, max(1, round(fraction * rows * top))) if fraction > 0 else 0
    return [glyphs.ramp[max(0, min(top, filled - (rows - 1 - row) * top))] for row in range(rows)]


def horizontal_bar(fraction: float, cells: int, glyphs: Glyphs) -> str:
    """A bar that grows to the right, in eighths of a cell in Unicode; always `cells` long."""
    if cells <= 0:
        return ""
    share = min(max(fraction, 0.0), 1.0)
    if not glyphs.unicode:
        return ("=" * round(share * cells)).ljust(cells)
    eighths = round(share * cells * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(cells)


def big(text: str, bold: bool = False) -> tuple[str, str, str]:
    """`text` (digits, point, comma, dash, < and >) as three rows of line-drawing digits."""
    font = DIGITS3X3_BOLD if bold else DIGITS3X3
    top = middle = bottom = ""
    for char in text:
        if char.isdigit():
            start = DIGITS.index(char) * _BIG_ROWS
            pieces = [row.ljust(3) for row in font[start : start + _BIG_ROWS]]
        elif char == "\u2013":
            pieces = ["   ", "╶─╴", "   "]
        elif char in "<>":
            pieces = ["   ", f" {char} ", "   "]
        else:
            pieces = [" ", " ", char]
        top, middle, bottom = top + pieces[0], middle + pieces[1], bottom + pieces[2]
    return top, middle, bottom
