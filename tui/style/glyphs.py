"""Bars, in Unicode or in ASCII."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`ramp[0]` is empty and `ramp[-1]` full; `unicode`: eighths of a cell exist."""

    ramp: str
    unicode: bool
    swatch: str
    pointer: str
    tick: str
    up: str
    down: str
    line: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", True, "■", "▸", "▲", " ▲", " ▼", "╴")
ASCII = Glyphs(" .:-=+*#%@", False, "#", ">", "^", " ^", " v", "-")


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
