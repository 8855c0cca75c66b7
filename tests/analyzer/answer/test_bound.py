"""The rules of the bound at their edges, and the sentences that show it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.answer.answer import StepLimit, bound_of, reasons
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.schema.answer import AnswerPart
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.schema.step_report import StepCost
from tests.helpers.answers import part_of

UNKNOWN = StepLimit()


def launches(depth: float | None) -> LaunchReport:
    return LaunchReport(
        calls=1,
        by_api={},
        graph_launches=0,
        gpu_ops_per_graph_launch=(),
        api_ns=None,
        queue_ns=None,
        launch_latency_ns=None,
        median_queue_depth=depth,
    )


def parts_of(**ns: int) -> list[AnswerPart]:
    return [part_of(name, length) for name, length in ns.items()]


@pytest.mark.parametrize(
    ("parts", "limit", "bound"),
    [
        (parts_of(gate_up=700, host_wait=300), StepLimit(600, "memory"), "memory"),
        (parts_of(gate_up=700, host_wait=300), StepLimit(600, "compute"), "compute"),
        (parts_of(gate_up=700, host_wait=300), StepLimit(599, "memory"), "kernels"),
        (parts_of(gate_up=300, host_wait=200, launch_call=101), UNKNOWN, "host"),
        (parts_of(gate_up=300, host_wait=200, launch_latency=99), UNKNOWN, "kernels"),
        (parts_of(gate_up=300, unlinked=301), UNKNOWN, "host"),
        (parts_of(gate_up=300, host_wait=200, kernel_floor=10), UNKNOWN, "kernels"),
        (parts_of(graph_internal=200, gate_up=101, host_wait=300), UNKNOWN, "kernels"),
        (parts_of(gate_up=300, communication=310, copy=9), UNKNOWN, "communication"),
        (parts_of(gate_up=300, communication=299, memcpy=301), UNKNOWN, "copies"),
        (parts_of(gate_up=300, host_wait=299, profiler=9_000), UNKNOWN, "kernels"),
        (parts_of(gate_up=0), UNKNOWN, "kernels"),
    ],
)
def test_the_largest_group_decides_below_the_limit(
    parts: list[AnswerPart], limit: StepLimit, bound: str
) -> None:
    assert bound_of(parts, limit) == bound


def test_a_part_near_its_limit_counts_for_what_it_is_over() -> None:
    parts = [part_of("gate_up", 500, limit_ns=450), *parts_of(host_wait=100)]
    assert bound_of(parts, StepLimit(450, "memory")) == "memory"
    assert bound_of(parts, StepLimit(350, "memory")) == "host"


def test_the_profilers_cost_is_no_part_of_the_judged_step() -> None:
    """A step of 1,000 ns that takes 2,000 ns under the profiler."""
    parts = parts_of(gate_up=700, host_wait=300, profiler=1_000)
    assert bound_of(parts, StepLimit(600, "memory")) == "memory"
    sentences = reasons(parts, StepLimit(600, "memory"), "memory", None, launches(1), "the step")
    assert sentences[0] == "the limit is at least 600 ns, 60.0% of 1.00 µs: at least 60%"


lengths = st.dictionaries(
    st.sampled_from((*GAP_CLASSES, *ROLES, "profiler")), st.integers(0, 10**9), min_size=1
)


@given(lengths, st.none() | st.integers(0, 10**10))
def test_every_step_has_a_bound_and_a_reason(ns: dict[str, int], limit_ns: int | None) -> None:
    parts = parts_of(**ns)
    limit = StepLimit(limit_ns, None if limit_ns is None else "memory")
    bound = bound_of(parts, limit)
    assert bound != "unknown"
    judged_ns = sum(length for name, length in ns.items() if name != "profiler")
    assert (bound == "memory") == (limit_ns is not None and limit_ns >= 0.6 * judged_ns > 0)
    assert reasons(parts, limit, bound, None, launches(None), "the step")


def test_the_sentences_name_the_figures() -> None:
    cost = StepCost(
        "model",
        "m",
        "bf16",
        4_800_000,
        None,
        device_name="NVIDIA H200",
        datasheet_peak_bytes_per_s=4.8e12,
        peak_source="NVIDIA H200 datasheet",
    )
    parts = [part_of("gate_up", 3_000, limit_ns=900), *parts_of(host_wait=1_000)]
    limit = StepLimit(1_000, "memory", is_lower_bound=False)
    kernels, host, of_limit = (
        "kernels, and the time between them: 2.10 µs over their limit, 52.5% of the step (gate_up "
        "2.10 µs)",
        "the host was late: 1.00 µs, 25.0% of the step (waiting for the host 1.00 µs)",
        "the limit is 1.00 µs, 25.0% of 4.00 µs: below 60% (4.80 MB at 4,800 GB/s, NVIDIA H200 "
        "datasheet)",
    )
    decided = reasons(parts, limit, "kernels", cost, launches(4), "the step")
    assert decided == (kernels, host, of_limit)
    decided = reasons(parts, limit, "memory", cost, launches(4), "the step")
    assert decided == (of_limit, kernels, host)


def test_the_queue_depth_is_evidence_of_a_late_host() -> None:
    parts = parts_of(gate_up=100, host_wait=900)
    for depth, shown in ((0.0, True), (44.0, True), (None, False)):
        sentences = reasons(parts, UNKNOWN, "host", None, launches(depth), "the step")
        assert any("queue depth" in sentence for sentence in sentences) == shown
    sentences = reasons(parts_of(gate_up=9), UNKNOWN, "kernels", None, launches(1), "the window")
    assert sentences == (
        "kernels, and the time between them: 9 ns, 100.0% of the window (gate_up 9 ns)",
        "the limit is not known: neither a model nor the trace says what must be read",
    )
