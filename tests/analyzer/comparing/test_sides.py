"""A comparison or a diff as one row for each side."""

import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.comparing.sides import pair_with_first, sides_of
from decodescope.analyzer.schema.step_report import Bandwidth
from tests.helpers.comparison_reports import ACCURACY, capture_of, runs_of, step_of, window_of

WINDOWS = {
    "eager": window_of([step_of(0, 1000, {"host_wait": 300})]),
    "compiled": window_of([step_of(0, 500, {"host_wait": 50}, launch_calls=1)]),
}
RATES = {"eager": [10.0, 11.0, 12.0], "compiled": [20.0, 21.0, 22.0], "other": [5.0, 5.1, 5.2]}


def test_the_sides_of_a_comparison() -> None:
    bandwidth = Bandwidth(1e12, 2e12, None, 0.5, "measured")
    comparison = compare_runs(runs_of(RATES, bandwidth=bandwidth), WINDOWS)
    eager, compiled, other = sides_of(comparison)
    assert (eager.name, eager.rounds, eager.tokens_per_s) == ("eager", 3, 11.0)
    assert (eager.ratio, eager.step_ns) == (None, 1e9 / 11)
    assert (eager.launches, eager.gpu_ops, eager.idle) == (3.0, 300.0, 0.3)
    assert (eager.mbu, eager.accuracy) == (0.5, ACCURACY)
    assert compiled.interval == comparison.comparison.variants[1].interval
    assert compiled.ratio is not None
    assert compiled.ratio.value == pytest.approx(21 / 11)
    assert (compiled.launches, compiled.beaten_by) == (1.0, ())
    assert eager.beaten_by == ("compiled",)
    assert (other.window, other.launches, other.idle) == (None, None, None)
    pair = pair_with_first(comparison, "compiled")
    assert pair is not None
    assert (pair.base, pair.other) == ("eager", "compiled")
    assert pair_with_first(comparison, "eager") is None


def test_the_sides_of_a_diff() -> None:
    base = window_of([step_of(0, 1000, {"host_wait": 300})], capture=capture_of(2000))
    other = window_of([step_of(0, 500, {})], capture=capture_of(1000, variant="compiled", batch=4))
    diff = diff_reports(base, other)
    a, b = sides_of(diff)
    assert (a.name, b.name) == ("A", "B")
    assert "compiled" in b.about
    assert (a.step_ns, b.step_ns) == (1000, 500)
    assert (a.tokens_per_s, b.tokens_per_s) == (500_000.0, 4_000_000.0)
    assert (a.ratio, a.answer, b.ratio, b.answer) == (None, None, None, diff.answer)
    pair = pair_with_first(diff, "B")
    assert pair is not None
    assert pair.step is diff.answer
    assert a.mbu == pytest.approx(10**9 * 1e9 / 2000 / 4.8e12)


def test_a_trace_without_steps_has_no_speed() -> None:
    a, _ = sides_of(diff_reports(window_of(), window_of()))
    assert (a.tokens_per_s, a.step_ns, a.mbu, a.launches) == (None, None, None, None)
