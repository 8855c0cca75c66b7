"""The sets of colours stay apart, within a set for every kind of colour vision."""

from collections.abc import Mapping
from itertools import combinations

import pytest
from rich.color import Color as AnsiColor
from rich.color import ColorSystem
from textual.color import Color, rgb_to_lab

from decodescope.analyzer.answer.parts import PROFILER
from decodescope.analyzer.names.rules import FAMILIES, ROLES
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.vocabulary import class_colors as colors

# Every colour of a part once: roles share the colours of families.
_NAMES = {color: name for name, color in colors.PART_COLORS.items()}
PARTS = {name: color for color, name in _NAMES.items()}
NUMBERED = {str(place + 1): color for place, color in enumerate(colors.VARIANT_COLORS)}
# Linear RGB as seen by dichromats: Machado, Oliveira and Fernandes (2009), severity 1.
VISIONS = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(color: str, vision: str) -> Color:
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in Color.parse(color).normalized
    ]
    parts = []
    for row in VISIONS[vision]:
        value = min(max(sum(a * b for a, b in zip(row, linear, strict=True)), 0.0), 1.0)
        value = 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055
        parts.append(round(value * 255))
    return Color(*parts)


def distance(one: Color, other: Color) -> float:
    """CIE76."""
    a, b = rgb_to_lab(one), rgb_to_lab(other)
    return float(((a.L - b.L) ** 2 + (a.a - b.a) ** 2 + (a.b - b.b) ** 2) ** 0.5)


def nearest(palette: Mapping[str, str], vision: str) -> tuple[float, str, str]:
    return min(
        (distance(seen(palette[one], vision), seen(palette[other], vision)), one, other)
        for one, other in combinations(palette, 2)
    )


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("palette", [PARTS, NUMBERED, colors.STATE_COLORS])
def test_colours_of_a_set_differ_for_every_vision(palette: Mapping[str, str], vision: str) -> None:
    assert nearest(palette, vision)[0] >= 12


def test_no_colour_is_in_two_sets() -> None:
    sets = (PARTS, NUMBERED, colors.STATE_COLORS, {"limit": colors.LIMIT_COLOR})
    for one, other in combinations(sets, 2):
        for a in one.values():
            assert min(distance(Color.parse(a), Color.parse(b)) for b in other.values()) >= 10, a


@pytest.mark.parametrize(
    ("palette", "letters"),
    [
        (colors.GAP_COLORS, colors.GAP_LETTERS),
        (colors.FAMILY_COLORS, colors.FAMILY_LETTERS),
        (colors.PART_COLORS, colors.PART_LETTERS),
        (NUMBERED, {name: name for name in NUMBERED}),
    ],
)
def test_entries_differ_by_colour_or_letter_on_sixteen_colours(
    palette: Mapping[str, str], letters: Mapping[str, str]
) -> None:
    shown = [
        (AnsiColor.parse(color).downgrade(ColorSystem.STANDARD).number, letters[name])
        for name, color in palette.items()
    ]
    assert len(set(shown)) == len(palette)
    assert all(len(letters[name]) == 1 for name in palette)


@pytest.mark.parametrize(
    "letters", [colors.GAP_LETTERS, colors.FAMILY_LETTERS, colors.PART_LETTERS]
)
def test_letters_tell_entries_apart_without_any_colour(letters: Mapping[str, str]) -> None:
    assert len(set(letters.values())) == len(letters)


def test_every_class_and_family_has_a_colour_and_a_letter() -> None:
    assert set(colors.GAP_COLORS) == set(colors.GAP_LETTERS) == set(GAP_CLASSES)
    assert set(colors.FAMILY_COLORS) == set(colors.FAMILY_LETTERS) == set(FAMILIES)
    parts = {*ROLES, *FAMILIES, *GAP_CLASSES, "memcpy", PROFILER}
    assert set(colors.PART_COLORS) == set(colors.PART_LETTERS) == parts


def test_a_part_has_the_colour_of_its_family_or_class_and_no_other() -> None:
    distinct = {*colors.FAMILY_COLORS.values(), *colors.GAP_COLORS.values(), colors.PROFILER_COLOR}
    assert set(PARTS.values()) == distinct
    assert len(distinct) == len(FAMILIES) + len(GAP_CLASSES) + 1
