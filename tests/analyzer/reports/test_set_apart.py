"""A hold planted into real traces is found once and moves no figure of a step; others have none."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.trace import Trace
from tests.helpers.planted.holds import (
    HOLD_NS,
    begun_late,
    held_before,
    held_in,
    launching_calls,
    ran_long,
)
from tests.helpers.read_once import analysed_once
from tests.helpers.reports import check_report

RECORDINGS = sorted((Path(__file__).parents[3] / "analyzer" / "recordings").glob("h200-*.dsrec"))
CLEAN = (
    "a100_eager",
    "cpu_only",
    "h100_qwen1.5_0.5b_eager",
    "h200_llama1b_hf_eager",
    "legacy_categories",
    "mi300x_vllm_decode_graph",
    "v100_cuda_graph",
    "a100_triton_small",
)
CAUSES = {
    "hipEventSynchronize": "wait",
    "cuLibraryLoadData": "module_loading",
    "hipMalloc": "allocation",
    "cudaGraphInstantiate": "graph_upload",
    None: "host",
}
# Where a place occurs in few steps, what is usual there is known no better.
JITTER_NS = 25_000


@cache
def clean(path: Path) -> Analysis:
    return analysed_once(path)


def planted(analysis: Analysis, held: Trace, ns: int, cause: str | set[str]) -> Report:
    """The report of a trace with one hold, which is checked against the clean one."""
    report, before = analyze(held).report, analysis.report
    check_report(report)
    (found,) = report.interruptions
    assert found.cause in ({cause} if isinstance(cause, str) else cause)
    assert abs(found.ns - ns) <= 0.01 * ns
    assert_near(report.answer.step_ns or 0, before.answer.step_ns or 0)
    for group in ("kernels", "communication", "copies", "host"):
        assert_near(group_ns(report, group), group_ns(before, group))
    for step, other in zip(report.steps, before.steps, strict=True):
        assert_near(step.time_ns or 0, other.time_ns or 0)
    assert report.devices[0].window_ns == before.devices[0].window_ns + ns
    assert {finding.code for finding in report.health.findings} >= {"interruptions"}
    return report


def group_ns(report: Report, group: str) -> int:
    return sum(part.ns for part in report.answer.parts if part.group == group)


def assert_near(found: int, wanted: int) -> None:
    assert abs(found - wanted) <= max(0.01 * wanted, JITTER_NS)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_nothing_holds_up_our_recordings(path: Path) -> None:
    report = clean(path).report
    assert report.interruptions == ()
    assert report.answer.interruptions_ns == 0


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_holds_up_clean_traces_of_others(foreign_traces: Path, name: str) -> None:
    """Eager steps that copy, wait or compile at the same place each time are as slow as that."""
    assert clean(foreign_traces / f"{name}.json.gz").report.interruptions == ()


def test_a_capture_holds_the_device_up(foreign_traces: Path) -> None:
    report = clean(foreign_traces / "mi300x_vllm_graph_capture.json.gz").report
    assert [one.cause for one in report.interruptions] == ["allocation", "graph_capture"]
    assert "hipFree" in report.interruptions[0].evidence


@given(st.sampled_from(RECORDINGS), st.data())
@settings(max_examples=30)
def test_a_hold_of_the_host_in_our_recordings(path: Path, data: st.DataObject) -> None:
    analysis = clean(path)
    name, ns = data.draw(st.sampled_from(list(CAUSES))), data.draw(st.integers(50, 2_000)) * 10**6
    calls = launching_calls(analysis.trace)
    call = data.draw(st.sampled_from(calls))
    report = planted(analysis, held_before(analysis.trace, call, ns, name), ns, CAUSES[name])
    assert report.answer.bound == analysis.report.answer.bound
    assert report.interruptions[0].call == name


@given(st.sampled_from(RECORDINGS), st.data())
@settings(max_examples=30)
def test_a_long_launch_and_a_late_start_in_our_recordings(path: Path, data: st.DataObject) -> None:
    analysis = clean(path)
    trace = analysis.trace
    call = data.draw(st.sampled_from(launching_calls(trace)))
    launched = {"launch", "first_replay", "module_loading", "call"}
    planted(analysis, held_in(trace, call, HOLD_NS), HOLD_NS, launched)
    first = int((trace.ops.launch == call).argmax())
    late = {"late_start", "first_replay", "wait"}
    planted(analysis, begun_late(trace, first, HOLD_NS), HOLD_NS, late)


@pytest.mark.parametrize("call", [4, 86, 231])
def test_a_late_start_where_other_steps_differ_most(call: int) -> None:
    """Before this op, the three steps have gaps of 20, 0 and 11 µs, or ones as far apart."""
    (path,) = (path for path in RECORDINGS if path.stem.endswith("-fused"))
    analysis = clean(path)
    first = int((analysis.trace.ops.launch == call).argmax())
    planted(analysis, begun_late(analysis.trace, first, HOLD_NS), HOLD_NS, "late_start")


@pytest.mark.parametrize(
    ("name", "ns"), [*((name, HOLD_NS) for name in CAUSES), (None, 60_000_000)]
)
def test_a_wait_before_a_graph_replay_does_not_make_decode_idle(
    foreign_traces: Path, name: str | None, ns: int
) -> None:
    """One step of 10.7 ms: without the hold apart it would be 97.7 % idle."""
    analysis = clean(foreign_traces / "mi300x_vllm_decode_graph.json.gz")
    for call in launching_calls(analysis.trace):
        held = held_before(analysis.trace, call, ns, name)
        report = planted(analysis, held, ns, CAUSES[name])
        assert report.answer.bound == analysis.report.answer.bound
        assert report.devices[0].idle_ns > 0.8 * report.devices[0].window_ns
        assert sum(part.ns for part in report.answer.parts) < 11_000_000


def test_a_first_replay_and_a_long_kernel_in_a_single_step(foreign_traces: Path) -> None:
    analysis = clean(foreign_traces / "mi300x_vllm_decode_graph.json.gz")
    trace = analysis.trace
    graph = next(
        call
        for call in launching_calls(trace)
        if trace.names[int(trace.calls.name[call])] == "hipGraphLaunch"
    )
    report = planted(analysis, held_in(trace, graph, HOLD_NS), HOLD_NS, "first_replay")
    assert report.interruptions[0].call == "hipGraphLaunch"
    repeated = trace.names.index(next(n for n in trace.names if n.startswith("_matmul_ogs")))
    op = int((trace.ops.name == repeated).argmax())
    report = planted(analysis, ran_long(trace, op, HOLD_NS), HOLD_NS, "long_op")
    assert report.interruptions[0].evidence.startswith("matmul_ogs bf16xbf16xmxfp4 ")
