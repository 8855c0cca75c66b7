"""Panels are inside the screen and do not overlap; the important ones are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.tui.screens import layout
from decodescope.tui.screens.layout import Place, Plan, frame_for
from decodescope.tui.screens.live import LiveScreen

sizes = st.tuples(st.integers(1, 320), st.integers(1, 120))


def plan(width: int, height: int, banner: int = 0, color: bool = True, text: bool = True) -> Plan:
    """Where the main screen puts its panels."""
    kind = "live" if text else "trace"
    bands = LiveScreen.bands(kind, width, frame_for(width, height), color)
    return layout.plan(bands, width, height, banner)


def cells(place: Place) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(place.x, place.x + place.width)
        for y in range(place.y, place.y + place.height)
    }


@given(sizes, st.integers(0, 6), st.booleans(), st.booleans())
def test_panels_are_inside_and_do_not_overlap(size, banner, color, text):
    width, height = size
    taken = 0
    union: set[tuple[int, int]] = set()
    for place in plan(width, height, banner, color, text).places.values():
        assert place.x >= 0
        assert place.y >= 0
        assert place.width >= 1
        assert place.height >= 1
        assert place.x + place.width <= width
        assert place.y + place.height <= height
        taken += place.width * place.height
        union |= cells(place)
    assert len(union) == taken


@given(sizes)
def test_the_state_is_shown_at_every_size(size):
    assert "title" in plan(*size).places


@given(st.integers(60, 320), st.integers(16, 120))
def test_figures_verdict_timeline_and_keys_from_60_by_16(width, height):
    assert {"title", "figures", "verdict", "timeline", "spark", "keys"} <= set(
        plan(width, height).places
    )


@given(st.integers(80, 320), st.integers(24, 120))
def test_everything_from_80_by_24(width, height):
    assert set(plan(width, height).places) == {
        "title", "figures", "verdict", "spark", "variants", "timeline", "kernels", "gaps", "text",
        "log", "keys",
    }  # fmt: skip


@given(sizes, st.integers(1, 100))
def test_a_taller_screen_loses_no_panel(size, more):
    width, height = size
    assert set(plan(width, height).places) <= set(plan(width, height + more).places)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_no_text_panel_without_text(size):
    assert "text" not in plan(*size, text=False).places


@given(sizes, st.integers(1, 6))
def test_a_banner_is_right_below_the_title(size, banner):
    places = plan(*size, banner).places
    if "banner" in places:
        assert places["banner"] == Place(0, 1, size[0], banner)
