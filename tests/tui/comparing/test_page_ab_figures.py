"""How long a comparison still takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonConfig,
    ComparisonProgress,
    RunMeasured,
)
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.tui.model.comparing import NO_COMPARISON, MeasuredRun
from tests.helpers.comparison_reports import run_of

CONFIG = ComparisonConfig(WorkerConfig(variant="", batch=1, tokens=4), ("a", "b"), 4)


@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=7),
    st.floats(0, 1000),
)
def test_the_time_left_is_that_of_the_runs_left(took_s: list[float], spent_s: float) -> None:
    state, now = NO_COMPARISON.begun(CONFIG, 0.0), 0.0
    for number, seconds in enumerate(took_s):
        round, name = divmod(number, 2)
        state = state.received(ComparisonProgress(4, round, "ab"[name]), now)
        now += seconds
        state = state.received(RunMeasured(run_of("ab"[name], round, 5.0)), now)
    round, name = divmod(len(took_s), 2)
    state = state.received(ComparisonProgress(4, round, "ab"[name]), now)
    assert len(state.runs) == len(took_s)
    last = {run.variant: run.took_s for run in state.runs}
    mean = sum(took_s) / len(took_s)
    runs_left = ["ab"[number % 2] for number in range(len(took_s), 8)]
    whole = sum(last.get(name, mean) for name in runs_left)
    left = state.left_s(now)
    assert left == pytest.approx(whole, rel=1e-6, abs=1e-6)
    later = state.left_s(now + spent_s)
    assert later is not None
    # A run that takes longer than expected does not make the others shorter.
    rest = whole - last.get(runs_left[0], mean)
    assert later >= rest - 1e-6
    assert later == pytest.approx(max(whole - spent_s, rest), rel=1e-6, abs=1e-6)


def test_before_the_first_run_and_after_the_last_no_time_is_known() -> None:
    state = NO_COMPARISON.begun(CONFIG, 0.0)
    assert state.left_s(1.0) is None
    state = state.received(ComparisonProgress(4, 0, "a"), 0.0)
    assert state.left_s(1.0) is None
    state = state.received(RunMeasured(run_of("a", 0, 5.0)), 3.0)
    assert state.runs == (MeasuredRun("a", 0, 5.0, 3.0),)
    assert state.left_s(3.0) == 21.0
    assert state.received(ComparisonProgress(4, stage="scoring a"), 30.0).left_s(31.0) is None
