"""Steps of a trace whose GPU ops were not recorded: the host alone says how long they took."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decodescope.analyzer.comparing.diff import diff_reports, diff_sides
from decodescope.analyzer.comparing.gate_samples import measured_trace
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.vocabulary.answer_words import answer_lines
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of
from tests.helpers.read_once import analysed_once
from tests.helpers.reports import analyzed

KERNELS = frozenset({"kernel"})
ON_A_GPU = KERNELS | {"gpu_memcpy", "gpu_memset", "gpu_user_annotation", "ac2g"}
LAYER = ("aten::mm", "aten::mul", "aten::add", "aten::softmax")
STEP = ("aten::embedding", *LAYER * 4, "aten::mm", "aten::argmax")


def without(path: Path, categories: frozenset[str]) -> Trace:
    """The trace without the events of these categories."""
    document: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    events = [one for one in document["traceEvents"] if one.get("cat") not in categories]
    return read_kineto_bytes(json.dumps(document | {"traceEvents": events}).encode(), "lost.json")


@pytest.mark.parametrize("categories", [KERNELS, ON_A_GPU])
@pytest.mark.parametrize("marked", [True, False])
def test_a_window_that_lost_its_kernels_has_its_step_time(
    foreign_traces: Path, marked: bool, categories: frozenset[str]
) -> None:
    path = foreign_traces / "h200_llama1b_hf_eager.json.gz"
    whole = analysed_once(path).report
    lost = analyzed(without(path, categories | (frozenset() if marked else {"user_annotation"})))
    answer = lost.report.answer
    assert lost.steps.source == ("markers" if marked else "repetition")
    assert whole.answer.step_ns is not None
    assert answer.step_ns == pytest.approx(whole.answer.step_ns, rel=0.01)
    assert (answer.steps, answer.whole_ns, answer.step, answer.parts) == (3, 0, None, ())
    assert answer.bound == "unknown"
    assert lost.steps.launch_calls.tolist() == [678] * 3
    headline = answer_lines(lost.report).headline
    assert headline.endswith("3 steps · 35.6 ms a step on the host · no timed GPU ops")


def launches(steps: int, rng: np.random.Generator, tid: int = 1) -> tuple[list[Event], list[int]]:
    """Calls of `steps` equal steps, each below its operator, and when each step begins: the host
    takes longest before it."""
    events, begins_ns, at_ns, correlation = [], [], 1_000, 1_000_000 * tid
    for _ in range(steps):
        at_ns += 5_000
        begins_ns.append(at_ns)
        for name in STEP:
            events.append(event("cpu_op", name, at_ns - 5, at_ns + 20, PID, tid))
            correlation += 1
            events.append(call(at_ns, at_ns + 10, correlation, tid=tid))
            at_ns += int(rng.integers(30, 300))
    return events, begins_ns


@pytest.mark.parametrize("threads", [1, 2])
def test_repeating_operators_make_steps_on_each_thread(threads: int) -> None:
    rng = np.random.default_rng()
    events, lengths_ns = [], []
    for tid in range(1, threads + 1):
        of_thread, begins_ns = launches(6, rng, tid)
        events += of_thread
        lengths_ns += np.diff(begins_ns).tolist()
    analysis = analyzed(trace_of(*events))
    assert len(analysis.steps) == 6 * threads
    followed = analysis.steps.following >= 0
    assert sorted(analysis.steps.time_ns[followed].tolist()) == sorted(lengths_ns)
    assert analysis.steps.launch_calls.tolist() == [len(STEP)] * 6 * threads
    (inferred,) = (one for one in analysis.report.health.findings if one.code == "inferred_steps")
    assert f"{6 * threads} steps were found by" in inferred.message


def test_marked_steps_without_a_launch_take_their_time() -> None:
    """As those of an engine on a CPU."""
    times_ns = ((0, 70), (100, 180), (230, 290))
    marks = [span(*time_ns, f"decode_step_{number}") for number, time_ns in enumerate(times_ns)]
    analysis = analyzed(trace_of(*marks))
    assert analysis.steps.time_ns.tolist() == [100, 130, 60]
    assert analysis.report.answer.step_ns == 100


def test_launches_that_do_not_repeat_are_no_steps() -> None:
    names = [f"aten::op{number}" for number in range(40)]
    events = [event("cpu_op", name, 100 * k, 100 * k + 50, PID, 1) for k, name in enumerate(names)]
    events += [call(100 * k + 5, 100 * k + 20, k + 1) for k in range(len(names))]
    analysis = analyzed(trace_of(*events))
    assert analysis.steps.source == "none"
    assert analysis.report.answer.step_ns is None


def timed_by(gpu: bool, step_ns: int) -> Analysis:
    events = []
    for step in range(4):
        at_ns = 1_000_000 + step * step_ns
        events.append(span(at_ns, at_ns + 900, f"decode_step_{step}"))
        events.append(call(at_ns, at_ns + 5, step + 1))
        if gpu:
            events.append(op(at_ns + 10, at_ns + 500, step + 1))
    return analyze(trace_of(*events))


def test_the_host_does_not_decide_against_a_gpu() -> None:
    gpu, host = timed_by(True, 1_000), timed_by(False, 1_500)
    diff = diff_reports(gpu.report, host.report)
    assert diff.answer.ratio == 1.5
    assert diff.answer.verdict == "unknown"
    assert diff.answer.parts == ()
    assert "step times of a GPU against those of the host alone" in diff.answer.differences
    with pytest.raises(InputError, match="no GPU activity was recorded"):
        measured_trace(host)


def test_a_lost_window_among_several_does_not_count() -> None:
    several = [timed_by(True, 1_000).report, timed_by(False, 3_000).report]
    diff = diff_sides(several, [timed_by(True, 2_000).report])
    assert diff.answer.base_step_ns == 1_000
    assert [trace.step_ns for trace in diff.answer.base_traces] == [1_000, None]
    assert any("has no GPU ops and does not count" in one.message for one in diff.findings)
