"""The app's themes, and the styles that panels draw with: a set of colours for each family of
meanings (see `analyzer/vocabulary/class_colors.py`).

No meaning is carried by colour alone: states have words, classes have letters, bars have lengths.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from rich._palettes import STANDARD_PALETTE
from rich.style import Style
from textual.color import WHITE, Color, ColorParseError
from textual.theme import BUILTIN_THEMES, Theme

from decodescope.analyzer.vocabulary.class_colors import (
    FAMILY_COLORS,
    GAP_COLORS,
    PART_COLORS,
    STATE_COLORS,
    VARIANT_COLORS,
)

_OTHER = FAMILY_COLORS["other"]
_MIN_CONTRAST = 3.0
_SHADES = 20
# Numbers of `STANDARD_PALETTE`, by the hue in degrees that each ends at. Cyan is no text on white.
_RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN, _WHITE, _BRIGHT_BLACK = range(1, 9)
_SKY, _BRIGHT = -1, 8
_HUES = (
    (5, _RED),
    (70, _YELLOW),
    (165, _GREEN),
    (190, _CYAN),
    (215, _SKY),
    (255, _BLUE),
    (355, _MAGENTA),
    (360, _RED),
)
_LEAST_SATURATION = 0.25

DARK = Theme(
    name="decodescope-dark",
    primary="#8FB3C4",
    secondary="#6C8794",
    accent="#8FB3C4",
    warning=STATE_COLORS["warn"],
    error=STATE_COLORS["bad"],
    success=STATE_COLORS["good"],
    foreground="#dfe4ea",
    background="#0e1216",
    surface="#151a20",
    panel="#1c232b",
    dark=True,
)
LIGHT = Theme(
    name="decodescope-light",
    primary="#31566A",
    secondary="#4A6B7C",
    accent="#31566A",
    warning="#9a6a00",
    error="#b3261e",
    success="#00704f",
    foreground="#1c232b",
    background="#f7f8f9",
    surface="#eceff2",
    panel="#e2e6ea",
    dark=False,
)
_ANSI = BUILTIN_THEMES["ansi-dark"]
# Without colours, a list's row at the cursor is underlined (Textual drops `reverse` there), and an
# input's cell is reversed.
PLAIN = replace(
    _ANSI,
    name="decodescope-plain",
    variables={
        **_ANSI.variables,
        "block-cursor-text-style": "bold underline",
        "block-cursor-blurred-text-style": "underline",
        "input-cursor-text-style": "reverse",
    },
)


def _luminance(color: Color) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in color.normalized
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(color: Color, other: Color) -> float:
    """The contrast ratio of two colours, 1 to 21, as WCAG 2 defines it."""
    darker, lighter = sorted((_luminance(color), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@cache
def _hue(color: str, background: Color, sixteen: bool) -> Style:
    if sixteen:
        return Style(color=_of_sixteen(color, background.get_contrast_text(1.0) == WHITE))
    return Style(color=readable(color, background))


def readable(color: str, background: Color) -> str:
    """`color`, darkened or lightened to a contrast of 3 (WCAG 2's least for graphics)."""
    base, towards = Color.parse(color), background.get_contrast_text(1.0)
    shades = (base.blend(towards, step / _SHADES) for step in range(_SHADES))
    return next(
        (shade.hex for shade in shades if contrast(shade, background) >= _MIN_CONTRAST),
        towards.hex6,
    )


def _of_sixteen(color: str, dark: bool) -> str:
    """The one of sixteen colours for `color` by its hue: grey, bright or not as `color` is, and
    never bright on a light ground. Red is for errors alone."""
    hue, saturation, lightness = Color.parse(color).hsl
    if saturation < _LEAST_SATURATION:
        return STANDARD_PALETTE[_WHITE if dark else _BRIGHT_BLACK].hex
    number = next(number for end, number in _HUES if hue * 360 <= end)
    if number == _SKY:
        number = _CYAN if dark else _BLUE
    bright = dark and (lightness >= 0.5 or number == _BLUE)
    return STANDARD_PALETTE[number + _BRIGHT * bright].hex


_PLAIN, _BOLD, _DIM = Style(), Style(bold=True), Style(dim=True)
_ALARM = Style(bold=True, underline=True)
_CURSOR = Style(reverse=True)
_MATCH = Style(underline=True)
_FOCUSED = Style(bold=True, reverse=True)
_BLACK = Color(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Inks:
    """The styles that panels draw with, for one theme and one kind of terminal.

    The defaults have no colours: bold, dim and reverse carry the emphasis. `letters`: colours do
    not tell the entries of a family apart (there are none, or sixteen), so letters do. `ground`:
    what colours of meanings have to be readable on.
    """

    color: bool = False
    letters: bool = True
    ground: Color = _BLACK
    base: Style = _PLAIN
    text: Style = _PLAIN
    strong: Style = _BOLD
    dim: Style = _DIM
    faint: Style = _DIM
    border: Style = _DIM
    title: Style = _BOLD
    focused: Style = _FOCUSED
    accent: Style = _BOLD
    good: Style = _BOLD
    warn: Style = _BOLD
    bad: Style = _ALARM
    key: Style = _BOLD
    cursor: Style = _CURSOR
    match: Style = _MATCH

    def hue(self, color: str) -> Style:
        """A palette colour as a foreground; plain text without colours."""
        return _hue(color, self.ground, self.letters) if self.color else self.text

    def variant(self, index: int) -> Style:
        return self.hue(VARIANT_COLORS[index % len(VARIANT_COLORS)])

    def gap(self, gap_class: str) -> Style:
        return self.hue(GAP_COLORS.get(gap_class, _OTHER))

    def family(self, family: str) -> Style:
        return self.hue(FAMILY_COLORS.get(family, _OTHER))

    def part(self, part: str) -> Style:
        return self.hue(PART_COLORS.get(part, _OTHER))

    def mark(self, letter: str, swatch: str) -> str:
        """The sign before an entry of a legend: its letter if colours do not tell it apart."""
        return letter if self.letters else swatch

    def chip(self, style: Style) -> Style:
        """`style` as a filled label, with its colour as the background."""
        if not self.color or style.color is None or style.color.triplet is None:
            return Style(reverse=True, bold=True)
        fill = Color(*style.color.triplet)
        return Style(color=fill.get_contrast_text(1.0).hex6, bgcolor=fill.hex6, bold=True)


def themed_inks(variables: dict[str, str], dark: bool, few_colors: bool = False) -> Inks:
    """Styles for a theme, from its CSS `variables`; letters are shown with `few_colors`."""

    def parsed(name: str) -> Color:
        with suppress(ColorParseError):
            if (color := Color.parse(variables.get(name, ""))).ansi is None:
                return color
        return Color.parse(getattr(DARK if dark else LIGHT, name))

    background, foreground, primary = map(parsed, ("background", "foreground", "primary"))

    def mixed(share: float) -> Style:
        return Style(color=background.blend(foreground, share).hex6)

    # Text that is readable on the row at the cursor is so on the background, too.
    ground = background.blend(primary, 0.28 if dark else 0.16)
    cursor = Style(bgcolor=ground.hex6)
    if few_colors:
        # Every colour of text is readable on none of the sixteen but the background.
        cursor = Style(color=background.hex6, bgcolor=foreground.hex6)

    def state(name: str, bold: bool = False) -> Style:
        return _hue(STATE_COLORS[name], ground, few_colors) + Style(bold=bold)

    return Inks(
        color=True,
        letters=few_colors,
        ground=ground,
        base=Style(color=foreground.hex6, bgcolor=background.hex6),
        text=mixed(0.88),
        strong=Style(color=foreground.hex6, bold=True),
        dim=mixed(0.62),
        faint=Style(color=readable(background.blend(foreground, 0.42).hex6, ground)),
        border=mixed(0.26),
        title=Style(color=primary.hex6, bold=True),
        focused=Style(color=background.hex6, bgcolor=primary.hex6, bold=True),
        accent=Style(color=primary.hex6),
        good=state("good"),
        warn=state("warn"),
        bad=state("bad", bold=True),
        key=Style(color=primary.hex6, bold=True),
        cursor=cursor,
        match=Style(color=foreground.hex6, bold=True, underline=True),
    )


@dataclass(frozen=True, slots=True)
class Glyphs:
    """`ramp[0]` is empty and `ramp[-1]` full; `shade` is another full one, `same` continues what is
    to its left. `unicode`: eighths of a cell exist."""

    ramp: str
    shade: str
    same: str
    unicode: bool
    swatch: str
    pointer: str
    tick: str
    up: str
    down: str
    line: str


UNICODE = Glyphs(" ▁▂▃▄▅▆▇█", "▓", "─", True, "■", "▸", "▲", " ▲", " ▼", "╴")
ASCII = Glyphs(" .:-=+*#%@", "&", "-", False, "#", ">", "^", " ^", " v", "-")


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
