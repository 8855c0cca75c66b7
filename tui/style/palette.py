"""The app's themes, and the styles that panels draw with: Okabe-Ito colours by meaning.

No meaning is carried by colour alone: states have words, classes have letters, bars have lengths.
"""

from dataclasses import dataclass, field

from rich.style import Style
from textual.color import Color, ColorParseError
from textual.theme import Theme

from decodescope.analyzer.views.class_colors import (
    BLUE,
    FAMILY_COLORS,
    GAP_COLORS,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILLION,
    YELLOW,
)

DARK = Theme(
    name="decodescope-dark",
    primary=SKY,
    secondary=BLUE,
    accent=ORANGE,
    warning=ORANGE,
    error=VERMILLION,
    success=GREEN,
    foreground="#dfe4ea",
    background="#0e1216",
    surface="#151a20",
    panel="#1c232b",
    dark=True,
)
LIGHT = Theme(
    name="decodescope-light",
    primary=BLUE,
    secondary="#00507d",
    accent="#9a6a00",
    warning="#9a6a00",
    error="#a84900",
    success="#00704f",
    foreground="#1c232b",
    background="#f7f8f9",
    surface="#eceff2",
    panel="#e2e6ea",
    dark=False,
)

_VARIANT_COLORS = (SKY, ORANGE, GREEN, PURPLE, YELLOW, VERMILLION, BLUE)
_LIGHT_DARKENING = {YELLOW: 0.5, SKY: 0.4, ORANGE: 0.35, PURPLE: 0.25, GREY: 0.35, GREEN: 0.2}
_DARK_LIFTING = {BLUE: 0.25}


def readable(color: str, dark: bool) -> str:
    """`color` adjusted for text: darker on a light background; blue is lighter on a dark one."""
    base = Color.parse(color)
    if dark:
        return base.blend(Color.parse("white"), _DARK_LIFTING.get(color, 0.0)).hex
    return base.blend(Color.parse("black"), _LIGHT_DARKENING.get(color, 0.1)).hex


def _parsed(value: str, default: str) -> Color:
    try:
        color = Color.parse(value)
    except ColorParseError:
        return Color.parse(default)
    return Color.parse(default) if color.ansi is not None else color


_PLAIN, _BOLD, _DIM = Style(), Style(bold=True), Style(dim=True)
_ALARM = Style(bold=True, underline=True)
_CURSOR = Style(reverse=True)
_FOUND = Style(underline=True)
_FOCUSED = Style(bold=True, reverse=True)


@dataclass(frozen=True, slots=True)
class Inks:
    """The styles that panels draw with, for one theme and one kind of terminal.

    The defaults have no colours: bold, dim and reverse carry the emphasis.
    """

    color: bool = False
    dark: bool = True
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
    found: Style = _FOUND
    _hues: dict[str, Style] = field(default_factory=dict, compare=False)

    def hue(self, color: str) -> Style:
        """A palette colour as a foreground; plain text without colours."""
        if not self.color:
            return self.text
        style = self._hues.get(color)
        if style is None:
            style = self._hues[color] = Style(color=readable(color, self.dark))
        return style

    def variant(self, index: int) -> Style:
        """The colour of the variant at `index` in the list."""
        return self.hue(_VARIANT_COLORS[index % len(_VARIANT_COLORS)])

    def gap(self, gap_class: str) -> Style:
        """The colour of a gap class."""
        return self.hue(GAP_COLORS.get(gap_class, GREY))

    def family(self, family: str) -> Style:
        """The colour of a family of ops."""
        return self.hue(FAMILY_COLORS.get(family, GREY))

    def chip(self, style: Style) -> Style:
        """`style` as a filled label, with its colour as the background."""
        if not self.color or style.color is None or style.color.triplet is None:
            return Style(reverse=True, bold=True)
        fill = Color(*style.color.triplet)
        return Style(color=fill.get_contrast_text(1.0).hex6, bgcolor=fill.hex6, bold=True)


def themed_inks(variables: dict[str, str], dark: bool) -> Inks:
    """Styles for a theme, from its CSS `variables` (`background`, `foreground`, `primary`)."""
    background = _parsed(variables.get("background", ""), "#121212" if dark else "#f4f4f4")
    foreground = _parsed(variables.get("foreground", ""), "#e0e0e0" if dark else "#202020")
    primary = _parsed(variables.get("primary", ""), SKY if dark else BLUE)

    def mixed(share: float) -> Style:
        return Style(color=background.blend(foreground, share).hex6)

    def hue(color: str, bold: bool = False) -> Style:
        return Style(color=readable(color, dark), bold=bold)

    return Inks(
        color=True,
        dark=dark,
        base=Style(color=foreground.hex6, bgcolor=background.hex6),
        text=mixed(0.88),
        strong=Style(color=foreground.hex6, bold=True),
        dim=mixed(0.62),
        faint=mixed(0.42),
        border=mixed(0.26),
        title=Style(color=primary.hex6, bold=True),
        focused=Style(color=background.hex6, bgcolor=primary.hex6, bold=True),
        accent=Style(color=primary.hex6),
        good=hue(GREEN),
        warn=hue(ORANGE),
        bad=hue(VERMILLION, bold=True),
        key=hue(ORANGE if dark else BLUE, bold=True),
        cursor=Style(bgcolor=background.blend(primary, 0.28).hex6),
        found=Style(color=foreground.hex6, bold=True, underline=True),
    )
