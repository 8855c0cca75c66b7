"""An analysis by another model is what `analyze` makes of the trace with it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.user_facts import Given, given_model
from tests.helpers.foreign.layered import layered
from tests.helpers.foreign.tensor_parallel import engine_trace
from tests.helpers.kineto_events import trace_of

sizes = st.none() | st.integers(1, 4096)


@pytest.fixture(scope="module")
def analyses() -> list[Analysis]:
    """A guess, layers without a model, no ops at all, and a run of ours."""
    traces = [engine_trace(), trace_of(*layered()), trace_of(), load(bundled_recordings()[-1])]
    return [analyze(trace) for trace in traces]


@settings(max_examples=20)
@given(
    st.none() | st.sampled_from(["auto", "none", "llama-3.1-70b", "llama-3.2-1b", "gpt-oss-20b"]),
    st.none() | st.sampled_from(["fp8", "int4", "bf16,kv=fp8"]),
    sizes,
    sizes,
    st.none() | st.sampled_from([1, 2, 4]),
)
def test_it_is_the_same_as_reading_the_trace_again(
    analyses: list[Analysis],
    model: str | None,
    weights: str | None,
    batch: int | None,
    context: int | None,
    devices: int | None,
) -> None:
    try:
        facts = given_model(Given(), model, weights, batch, context, devices)
    except InputError:
        assert model in ("none", "gpt-oss-20b", "llama-3.1-70b", "llama-3.2-1b")
        return
    for analysis in analyses:
        assert analysis.with_model(facts).report == analyze(analysis.trace, facts).report


def test_sizes_need_a_model() -> None:
    with pytest.raises(InputError, match="--batch: says something of a model"):
        given_model(Given(), "none", None, 3, None, None)
