"""Panels are inside the screen and do not overlap; the important ones are kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.tui.pages import layout
from decodescope.tui.pages.all_pages import PAGES
from decodescope.tui.pages.layout import DETAILS_BESIDE_WIDTH, Page, Place, Plan

STEP = PAGES[0]
WANTED = {"answer": 20, "variants": 3, "text": 1}
sizes = st.tuples(st.integers(1, 320), st.integers(1, 120))
pages = st.sampled_from(PAGES)
kinds = st.sampled_from(["live", "replay", "trace"])


def plan(size: tuple[int, int], page: Page = STEP, kind: str = "live", **wanted: int) -> Plan:
    """Where a page puts its panels; without colours it needs the most rows."""
    return layout.plan(page, kind, size, WANTED | wanted, color=False)


def cells(place: Place) -> set[tuple[int, int]]:
    return {
        (x, y)
        for x in range(place.x, place.x + place.width)
        for y in range(place.y, place.y + place.height)
    }


@given(sizes, pages, kinds, st.integers(0, 6), st.integers(0, 60), st.integers(0, 1))
def test_panels_are_inside_and_do_not_overlap(size, page, kind, banner, answer, details):
    width, height = size
    taken = 0
    union: set[tuple[int, int]] = set()
    wanted = {"banner": banner, "answer": answer, "details": details}
    for place in plan(size, page, kind, **wanted).places.values():
        assert place.x >= 0
        assert place.y >= 0
        assert place.width >= 1
        assert place.height >= 1
        assert place.x + place.width <= width
        assert place.y + place.height <= height
        taken += place.width * place.height
        union |= cells(place)
    assert len(union) == taken


@given(sizes, pages)
def test_the_state_is_shown_at_every_size(size, page):
    assert "title" in plan(size, page).places


@given(st.integers(60, 320), st.integers(16, 120), pages, kinds)
def test_the_frame_and_a_first_panel_from_60_by_16(width, height, page, kind):
    places = plan((width, height), page, kind).places
    assert {"title", "tabs", "strip", "keys"} <= set(places)
    assert set(places) & {panel.NAME for panel in page.panels()}


@given(st.integers(60, 320), st.integers(16, 120))
def test_answer_and_timeline_of_a_run_from_60_by_16(width, height):
    places = plan((width, height), answer=20).places
    assert {"answer", "timeline_top"} <= set(places)
    assert places["answer"].height >= 6


@given(st.integers(80, 320), st.integers(24, 120))
def test_everything_of_a_run_from_80_by_24(width, height):
    assert set(plan((width, height)).places) >= {
        "title",
        "tabs",
        "strip",
        "history",
        "variants",
        "answer",
        "timeline_top",
        "keys",
    }


@given(sizes, pages, kinds, st.integers(1, 100))
def test_a_taller_screen_loses_no_panel(size, page, kind, more):
    width, height = size
    taller = plan((width, height + more), page, kind).places
    assert set(plan(size, page, kind).places) <= set(taller)


@given(st.integers(DETAILS_BESIDE_WIDTH, 320), st.integers(16, 120), pages)
def test_details_are_beside_the_page_from_140_columns(width, height, page):
    assert "details" not in plan((width, height), page).places
    places = plan((width, height), page, details=1).places
    assert ("details" in places) == (page.details or page.name == "limit")
    if page.details:
        place = places["details"]
        assert place.x + place.width == width
        assert all(
            places[panel.NAME].x + places[panel.NAME].width <= place.x
            for panel in page.panels()
            if panel.NAME in places
        )


LIMIT = next(page for page in PAGES if page.name == "limit")


@given(
    sizes,
    st.sampled_from([0, 1]),
    st.integers(1, 100),
)
def test_a_taller_page_of_limits_loses_no_panel(size, details, more):
    width, height = size
    wanted = {"details": details}
    taller = plan((width, height + more), LIMIT, "trace", **wanted).places
    assert set(plan(size, LIMIT, "trace", **wanted).places) <= set(taller)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_a_trace_has_no_history_and_no_text(size):
    assert {"history", "text"}.isdisjoint(plan(size, kind="trace", text=0).places)


@pytest.mark.parametrize("answer", [6, 20, 60])
def test_a_trace_has_parts_on_the_smallest_screen(answer):
    places = plan((60, 16), kind="trace", text=0, variants=0, answer=answer).places
    assert places["answer"].height >= 6
    assert "timeline_top" in places


@given(sizes, pages, st.integers(1, 6))
def test_a_banner_is_right_below_the_title(size, page, banner):
    places = plan(size, page, banner=banner).places
    if "banner" in places:
        assert places["banner"] == Place(0, 1, size[0], banner)
