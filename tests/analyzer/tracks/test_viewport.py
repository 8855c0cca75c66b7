"""The visible time and compressed time."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.trace import Intervals
from decodescope.analyzer.tracks.viewport import TimeMap, Viewport, as_it_is, compressed, fitting

spans = st.integers(1, 10**12)
starts = st.integers(-(10**9), 2**61)
widths = st.integers(1, 300)


@given(starts, spans, widths)
def test_the_edges_are_exact(start, span, columns):
    edges = Viewport(start, span).edges_ns(columns).tolist()
    assert edges == [start + place * span // columns for place in range(columns + 1)]


@given(starts, spans, widths, st.integers(-(10**12), 10**12))
def test_a_time_is_in_its_column(start, span, columns, offset):
    view = Viewport(start, span)
    column = view.column_of(start + offset, columns)
    assert column * span // columns <= offset < (column + 1) * span // columns


@given(starts, spans, st.fractions(0, 1), st.sampled_from([Fraction(1, 2), 2, Fraction(4, 5)]))
def test_zooming_keeps_the_pointer_where_it_is(start, span, place, factor):
    view = Viewport(start, span)
    at = start + int(place * span)
    zoomed = view.zoomed(Fraction(factor), at)
    assert zoomed.span_ns == max(int(span * factor), 1)
    assert abs(Fraction(at - zoomed.start_ns, zoomed.span_ns) - Fraction(at - start, span)) <= (
        Fraction(1, zoomed.span_ns)
    )


@given(starts, spans, starts, spans, widths)
def test_a_viewport_stays_in_the_world(start, span, begin, length, columns):
    view = Viewport(start, span).within(begin, begin + length, columns)
    assert begin <= view.start_ns <= view.end_ns <= begin + length
    assert view.span_ns == min(max(span, columns), length)
    if begin <= start and start + span <= begin + length and span >= columns:
        assert view == Viewport(start, span)


@given(starts, spans, starts, st.integers(0, 10**12))
def test_what_is_shown_is_inside(start, span, begin, length):
    view = Viewport(start, span).showing(begin, begin + length)
    assert view.start_ns <= begin <= begin + length <= view.end_ns
    assert view.span_ns >= span
    assert fitting(begin, begin + length).start_ns <= begin


@st.composite
def busy_worlds(draw):
    at, found = draw(st.integers(0, 30)), []
    for _ in range(draw(st.integers(0, 10))):
        end = at + draw(st.integers(1, 20))
        found.append((at, end))
        at = end + draw(st.one_of(st.integers(1, 5), st.integers(1, 4000)))
    world = (-draw(st.integers(0, 500)), at + draw(st.integers(0, 500)))
    return Intervals(*np.array(found, dtype=np.int64).reshape(-1, 2).T), world


@given(busy_worlds())
def test_idle_time_is_drawn_no_longer_than_busy_time(case):
    busy, world = case
    mapped = compressed(busy, world)
    times = np.arange(world[0], world[1] + 1)
    drawn = mapped.draw(times)
    assert (np.diff(drawn) >= 0).all()
    if not len(mapped.cut):
        assert (drawn == times).all()
        return
    busy_ns = int(busy.length_ns.sum())
    lengths = mapped.draw(busy.end_ns) - mapped.draw(busy.start_ns)
    assert (lengths == busy.length_ns).all()
    idle = Intervals(np.append(world[0], busy.end_ns), np.append(busy.start_ns, world[1]))
    gaps = (mapped.draw(idle.end_ns) - mapped.draw(idle.start_ns)).tolist()
    limit = mapped.limit_ns
    assert gaps == [min(gap, limit) for gap in idle.length_ns.tolist()]
    assert sum(gaps) <= busy_ns or limit == 1
    assert sum(min(gap, limit + 1) for gap in idle.length_ns.tolist()) > busy_ns
    back = mapped.time(drawn)
    assert (np.diff(back) >= 0).all()
    outside = np.ones(len(times), dtype=bool)
    for start, end in zip(mapped.cut.start_ns, mapped.cut.end_ns, strict=True):
        outside[(times > start) & (times < end)] = False
    assert (back[outside] == times[outside]).all()


def test_one_long_gap_no_longer_hides_what_is_around_it() -> None:
    """600 kernels of 3 µs, then 26 ms of nothing, then one kernel."""
    starts = np.append(np.arange(600) * 4_000, 600 * 4_000 + 26_000_000)
    busy = Intervals(starts, starts + 3_000)
    world = (0, int(busy.end_ns[-1]))
    mapped: TimeMap = compressed(busy, world)
    share = [
        one.draw_one(600 * 4_000) / one.draw_one(world[1]) for one in (as_it_is(world), mapped)
    ]
    assert share[0] < 0.09
    assert share[1] > 0.6
    assert len(mapped.cut) == 1
