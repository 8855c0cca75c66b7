"""Ramps and big digits, in Unicode or in ASCII."""

from dataclasses import dataclass

from textual.renderables.digits import DIGITS, DIGITS3X3, DIGITS3X3_BOLD

_BIG_ROWS = 3


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`ramp[0]` is empty and `ramp[-1]` full; `big_digits` says whether they can be drawn."""

    ramp: str
    big_digits: bool
    swatch: str
    pointer: str
    tick: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", True, "■", "▸", "▲")
ASCII = Glyphs(" .:-=+*#%@", False, "#", ">", "^")


def level(fraction: float, glyphs: Glyphs) -> str:
    """The ramp's glyph for a fraction of 0 to 1; anything above 0 shows at least the first."""
    top = len(glyphs.ramp) - 1
    if not fraction > 0:
        return glyphs.ramp[0]
    return glyphs.ramp[max(1, min(top, round(fraction * top)))]


def column(fraction: float, rows: int, glyphs: Glyphs) -> list[str]:
    """A vertical bar of `rows` cells for a fraction of 0 to 1, top cell first."""
    top = len(glyphs.ramp) - 1
    filled = min(rows * top, max(1, round(fraction * rows * top))) if fraction > 0 else 0
    return [glyphs.ramp[max(0, min(top, filled - (rows - 1 - row) * top))] for row in range(rows)]


def horizontal_bar(fraction: float, cells: int, unicode: bool) -> str:
    """A bar that grows to the right, with eighths of a cell in Unicode; always `cells` long."""
    if cells <= 0:
        return ""
    share = min(max(fraction, 0.0), 1.0)
    if not unicode:
        return ("=" * round(share * cells)).ljust(cells)
    eighths = round(share * cells * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (" ▏▎▍▌▋▊▉"[part] if part else "")).ljust(cells)


def big_width(text: str) -> int:
    """Cells that `big` needs for `text`."""
    return sum(3 if char.isdigit() or char in "\u2013<>" else 1 for char in text)


def big(text: str, bold: bool = False) -> tuple[str, str, str]:
    """`text` (digits, point, comma, dash) as three rows of line-drawing digits."""
    rows = ["", "", ""]
    font = DIGITS3X3_BOLD if bold else DIGITS3X3
    for char in text:
        if char.isdigit():
            start = DIGITS.index(char) * _BIG_ROWS
            for row in range(_BIG_ROWS):
                rows[row] += font[start + row].ljust(3)
        elif char == "\u2013":
            for row, piece in enumerate(("   ", "╶─╴", "   ")):
                rows[row] += piece
        elif char in "<>":
            for row, piece in enumerate(("   ", f" {char} ", "   ")):
                rows[row] += piece
        else:
            for row, piece in enumerate((" ", " ", char)):
                rows[row] += piece
    return rows[0], rows[1], rows[2]
