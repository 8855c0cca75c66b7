"""The last second of step times, against a direct computation."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.variants.live.decoding import WINDOW_NS, keep_recent

times = st.lists(st.integers(1, 2 * WINDOW_NS), min_size=1, max_size=60)


@given(times, st.integers(1, 8), st.lists(st.integers(0, 60), max_size=5))
def test_figures_are_those_of_the_newest_steps_within_the_window(step_ns, batch, looks):
    recent = deque()
    for count, step in enumerate(step_ns):
        recent.append(step)
        if count in looks:
            keep_recent(recent)
    keep_recent(recent)

    kept = []
    for step in reversed(step_ns):
        if kept and sum(kept) + step > WINDOW_NS:
            break
        kept.append(step)
    assert list(recent) == kept[::-1]
    assert tokens_per_s(recent, batch) == batch * len(kept) * 1e9 / sum(kept)
    figures = step_times(recent)
    assert sum(t <= figures.p50 for t in kept) >= len(kept) / 2
    assert sum(t >= figures.p50 for t in kept) >= len(kept) / 2
    assert sum(t <= figures.p99 for t in kept) >= 0.99 * len(kept)
    assert figures.p99 in kept


def test_no_steps_are_left_as_they_are():
    recent = deque()
    keep_recent(recent)
    assert not recent
