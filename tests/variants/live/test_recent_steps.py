"""The last second of step times, against a direct computation."""

from hypothesis import given
from hypothesis import strategies as st

from decodescope.variants.live.decoding import WINDOW_NS, RecentSteps

times = st.lists(st.integers(1, 2 * WINDOW_NS), min_size=1, max_size=60)


@given(times, st.integers(1, 8), st.lists(st.integers(0, 60), max_size=5))
def test_figures_are_those_of_the_newest_steps_within_the_window(step_ns, batch, looks):
    recent = RecentSteps(batch)
    for count, step in enumerate(step_ns):
        recent.times_ns.append(step)
        if count in looks:
            recent.figures()
    figures = recent.figures()

    kept = []
    for step in reversed(step_ns):
        if kept and sum(kept) + step > WINDOW_NS:
            break
        kept.append(step)
    kept.sort()
    assert figures.steps == len(kept)
    assert figures.tokens_per_s == batch * len(kept) * 1e9 / sum(kept)
    assert sum(t <= figures.p50_ns for t in kept) >= len(kept) / 2
    assert sum(t >= figures.p50_ns for t in kept) >= len(kept) / 2
    assert sum(t <= figures.p99_ns for t in kept) >= 0.99 * len(kept)
    assert figures.p99_ns in kept


def test_no_steps_give_no_figures():
    recent = RecentSteps(1)
    assert recent.figures() is None
    recent.times_ns.append(5)
    recent.times_ns.clear()
    assert recent.figures() is None
