"""The app's colours by theme, and letters where a terminal has too few."""

import os
import sys
from itertools import combinations
from pathlib import Path

import pytest
from rich.color import ColorSystem
from textual.color import Color

from decodescope.analyzer.vocabulary.class_colors import (
    FAMILY_COLORS,
    GAP_COLORS,
    PART_COLORS,
    STATE_COLORS,
    VARIANT_COLORS,
)
from decodescope.tui.style.palette import DARK, LIGHT, Inks, contrast, readable, themed_inks
from decodescope.tui.terminal_app import TerminalTraits
from tests.helpers import scripted

ALL = (*FAMILY_COLORS.values(), *PART_COLORS.values(), *VARIANT_COLORS, *STATE_COLORS.values())


@pytest.mark.parametrize("theme", [DARK, LIGHT])
@pytest.mark.parametrize("color", sorted(set(ALL)))
def test_every_colour_is_readable_on_both_themes(theme, color) -> None:
    background = Color.parse(theme.background)
    assert contrast(Color.parse(readable(color, background)), background) >= 3


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("names", [tuple(GAP_COLORS), tuple(FAMILY_COLORS)])
def test_entries_have_different_styles(dark, names) -> None:
    inks = themed_inks({}, dark)
    hue = inks.gap if names[0] in GAP_COLORS else inks.family
    styles = [hue(name) for name in names]
    assert all(one != other for one, other in combinations(styles, 2))


def test_letters_stand_in_for_swatches_without_enough_colours() -> None:
    assert themed_inks({}, True).mark("h", "■") == "■"
    assert themed_inks({}, True, few_colors=True).mark("h", "■") == "h"
    assert Inks().mark("h", "■") == "h"


@pytest.mark.parametrize(
    ("variables", "few"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm-256color"}, False),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, False),
    ],
)
def test_the_terminal_is_asked_how_many_colours_it_has(variables, few) -> None:
    pexpect = pytest.importorskip("pexpect")
    code = "from decodescope.cli.output import has_few_colors; print(has_few_colors())"
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    said = pexpect.run(f'{sys.executable} -c "{code}"', env=kept | variables, timeout=60)
    assert said.split() == [str(few).encode()]


async def test_a_terminal_of_sixteen_colours_gets_letters(tmp_path: Path, trace_file: Path) -> None:
    session = scripted.Session(tmp_path, traits=TerminalTraits(few_colors=True))
    async with session.app.run_test(size=(120, 40)) as pilot:
        await session.run(pilot, scripted.ready(trace_file))
        shown = scripted.text_of(session.app)
    assert "h host_wait" in shown
    assert "■ host_wait" not in shown


@pytest.mark.parametrize("theme", [DARK, LIGHT])
def test_of_sixteen_colours_red_is_for_errors_and_text_can_be_read(theme) -> None:
    inks = themed_inks(theme.to_color_system().generate(), theme.dark, few_colors=True)
    shown = {color: inks.hue(color).color for color in ALL}
    numbers = {
        color: one.downgrade(ColorSystem.STANDARD).number % 8 for color, one in shown.items()
    }
    assert {color for color, number in numbers.items() if number == 1} == {STATE_COLORS["bad"]}
    for name, number in {"host_wait": 3, "launch_latency": 3, "dependency": 5}.items():
        assert numbers[GAP_COLORS[name]] == number
    ground = Color.parse("black" if theme.dark else "white")
    assert all(contrast(Color.parse(one.name), ground) >= 3 for one in shown.values())
