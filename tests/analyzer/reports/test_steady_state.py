"""A hold planted into real traces is found once and moves no steady figure; others have none."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze, load
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
from tests.helpers.reports import check_report

RECORDINGS = sorted((Path(__file__).parents[3] / "analyzer" / "recordings").glob("*.dsrec"))
CLEAN = (
    "a100_eager", "cpu_only", "h100_qwen1.5_0.5b_eager", "h200_llama1b_hf_eager",
    "legacy_categories", "mi300x_vllm_decode_graph", "v100_cuda_graph", "a100_triton_small",
)  # fmt: skip
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
    return analyze(load(path))


def planted(analysis: Analysis, held: Trace, ns: int, cause: str | set[str]) -> Report:
    """The report of a trace with one hold, which is checked against the clean one."""
    report, before = analyze(held).report, analysis.report
    check_report(report)
    (found,) = report.interruptions
    assert found.cause in ({cause} if isinstance(cause, str) else cause)
    assert abs(found.ns - ns) <= 0.01 * ns
    assert report.steady is not None
    assert before.steady is not None
    for name in ("window_ns", "busy_ns", "idle_ns", "step_ns"):
        assert_near(getattr(report.steady, name), getattr(before.steady, name))
    assert abs((report.steady.idle_share or 0) - (before.steady.idle_share or 0)) <= 0.01
    for steady, whole in zip(report.steady.devices, report.devices, strict=True):
        assert steady.window_ns + steady.interrupted_ns == whole.window_ns
        assert steady.busy_ns + steady.idle_ns == steady.window_ns
        assert sum(steady.gaps.values()) == steady.idle_ns
    for one, other in zip(report.steady.steps, before.steady.steps, strict=True):
        for name in ("time_ns", "gpu_span_ns", "busy_ns", "idle_ns"):
            assert_near(getattr(one, name), getattr(other, name))
    assert report.devices[0].window_ns == before.devices[0].window_ns + ns
    assert {finding.code for finding in report.health.findings} >= {"interruptions"}
    return report


def assert_near(found: int, wanted: int) -> None:
    assert abs(found - wanted) <= max(0.01 * wanted, JITTER_NS)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_nothing_holds_up_our_recordings(path: Path) -> None:
    report = clean(path).report
    assert report.interruptions == ()
    assert report.steady is not None
    (device,) = report.devices
    (steady,) = report.steady.devices
    assert (steady.window_ns, steady.busy_ns) == (device.window_ns, device.busy_ns)
    assert steady.gaps == {name: gap.total_ns for name, gap in device.gaps.items() if gap.total_ns}


@pytest.mark.parametrize("name", CLEAN)
def test_nothing_holds_up_clean_traces_of_others(foreign_traces: Path, name: str) -> None:
    """Eager steps that copy, wait or compile at the same place each time are as slow as that."""
    assert clean(foreign_traces / f"{name}.json.gz").report.interruptions == ()


def test_a_capture_holds_the_device_up(foreign_traces: Path) -> None:
    report = clean(foreign_traces / "mi300x_vllm_graph_capture.json.gz").report
    assert [one.cause for one in report.interruptions] == ["allocation", "graph_capture"]
    assert "hipFree" in report.interruptions[0].evidence


@given(st.sampled_from(RECORDINGS), st.data())
@settings(max_examples=60)
def test_a_hold_of_the_host_in_our_recordings(path: Path, data: st.DataObject) -> None:
    analysis = clean(path)
    name, ns = data.draw(st.sampled_from(list(CAUSES))), data.draw(st.integers(50, 2_000)) * 10**6
    calls = launching_calls(analysis.trace)
    call = data.draw(st.sampled_from(calls))
    report = planted(analysis, held_before(analysis.trace, call, ns, name), ns, CAUSES[name])
    assert report.answer.bound == analysis.report.answer.bound
    assert report.interruptions[0].call == name
    (before,) = analysis.report.steady.steps if analysis.report.steady else ()
    (after,) = report.steady.steps if report.steady else ()
    assert_near(after.host_ns, before.host_ns)
    assert (after.launch_calls, after.gpu_ops) == (before.launch_calls, before.gpu_ops)
    # Between two steps it is in the time of the first, and in the marker of the second.
    assert after.interrupted_steps in (1, 2)


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


@pytest.mark.parametrize("name", list(CAUSES))
@pytest.mark.parametrize("ns", [60_000_000, HOLD_NS])
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
        assert report.observer == analysis.report.observer or report.observer is not None
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
