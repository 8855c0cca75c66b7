"""The app's own themes, dark and light, around the Okabe-Ito blues."""

from textual.theme import Theme

from decodescope.analyzer.views.class_colors import BLUE, GREEN, ORANGE, SKY, VERMILLION

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
