"""Steps of traces without markers, from graph launches and from repetition."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.reports.analysis import Analysis
from tests.helpers.kineto_events import Event, call, op, span, trace_of
from tests.helpers.read_once import loaded_once

LAYER = ("norm", "qkv", "rope", "attention", "o", "gate_up", "silu", "down")
DECODER_LAYER = ("rms_norm", "gemm", "rotary_embedding", "flash_fwd_kernel", "gemm", "silu")
DECODER = ("embed", *DECODER_LAYER * 4, "final_norm", "gemm_head", "argmax")
CONVOLVING = ("embed", *("conv2d_fprop_kernel", *DECODER_LAYER) * 4, "gemm_head", "argmax")
STEP = ("embed", *LAYER * 4, "final_norm", "head", "argmax")
Launch = tuple[str, Sequence[str], int]


def plain(*names: str, wait: int = 0) -> list[Launch]:
    """One launch call for each name; the device waits `wait` ns before the first."""
    return [("cudaLaunchKernel", [name], wait if not at else 0) for at, name in enumerate(names)]


def graph(*names: str, wait: int = 0) -> list[Launch]:
    return [("cudaGraphLaunch", names, wait)]


def events_of(
    launches: Sequence[Launch], tid: int = 1, device: int = 0, gaps_ns: Sequence[int] = (11, 17, 13)
) -> list[Event]:
    """The calls 10 ns apart; ops of 5 ns, 10 µs behind their calls, `gaps_ns` apart in turn."""
    events, at_ns, correlation, gaps = [], 10_000, 1_000_000 * tid, cycle(gaps_ns)
    for index, (api, names, wait) in enumerate(launches):
        correlation += 1
        events.append(call(10 * index, 10 * index + 5, correlation, name=api, tid=tid))
        at_ns += wait
        for name in names:
            events.append(op(at_ns, at_ns + 5, correlation, name=name, device=device))
            at_ns += 5 + next(gaps)
    return events


def analysis_of(launches: Sequence[Launch]) -> Analysis:
    return analyze(trace_of(*events_of(launches)))


def step_names(analysis: Analysis) -> list[list[str]]:
    """The names of each step's ops in order of start."""
    trace, op_step = analysis.trace, analysis.steps.op_step
    return [
        [trace.names[name] for name in trace.ops.name[op_step == step]]
        for step in range(len(analysis.steps))
    ]


def codes(analysis: Analysis) -> list[str]:
    return [finding.code for finding in analysis.report.health.findings]


def test_each_launch_of_a_graph_with_layers_is_a_step() -> None:
    launches = graph(*STEP) * 5
    analysis = analysis_of(launches)
    assert analysis.steps.source == "graphs"
    assert step_names(analysis) == [list(STEP)] * 5
    assert analysis.steps.following.tolist() == [1, 2, 3, 4, -1]
    assert analysis.steps.marker.tolist() == [-1] * 5
    assert {step.name for step in analysis.report.steps} == {"step"}
    assert [step.host_ns for step in analysis.report.steps] == [5] * 5
    assert codes(analysis) == ["inferred_steps"]
    assert "5 steps" in analysis.report.health.findings[0].message
    assert analysis.report.health.status == "ok"
    kinds = analysis.report.step_kinds
    assert [(row.kind, row.steps, row.batch) for row in kinds] == [("unknown", 5, None)]


def test_calls_around_a_graph_belong_to_the_step_cut_at_the_longest_wait() -> None:
    step = plain("copy_in", "prepare", wait=500) + graph(*STEP) + plain("sample", "copy_out")
    analysis = analysis_of(step * 4)
    assert analysis.steps.source == "graphs"
    assert step_names(analysis) == [["copy_in", "prepare", *STEP, "sample", "copy_out"]] * 4
    assert analysis.steps.launch_calls.tolist() == [5] * 4
    assert analysis.report.steps[0].host_ns == 45


def test_the_shortest_cycles_may_have_fewer_calls_than_is_typical() -> None:
    inputs = ("copy_in",) * 6
    launches = (plain(*inputs, wait=500) + graph(*STEP)) * 5 + graph(*STEP) * 3
    expected = [[*inputs, *STEP]] * 5 + [[*STEP]] * 3
    assert step_names(analysis_of(launches)) == expected


def test_without_a_wait_steps_begin_with_the_graph_launch() -> None:
    launches = plain("prefill") + (graph(*STEP) + plain("sample")) * 4
    analysis = analyze(trace_of(*events_of(launches, gaps_ns=(0,))))
    assert step_names(analysis) == [[*STEP, "sample"]] * 4


def test_piecewise_graphs_are_one_step_for_each_period() -> None:
    layer = graph("o", "norm", "gate_up", "silu", "down", "norm", "qkv") + plain("attention")
    step = graph("embed", "norm", "qkv", wait=900) + plain("attention") + layer * 5
    step += graph("o", "final_norm", "head") + plain("argmax")
    analysis = analysis_of(step * 4)
    assert analysis.steps.source == "graphs"
    names = step_names(analysis)
    assert len(names) == 4
    assert {(one[0], one[-1], len(one)) for one in names} == {("embed", "argmax", 48)}


def test_two_batch_sizes_are_two_graphs_and_a_prefill_between_is_no_step() -> None:
    prefill = plain(*[f"prefill_{index}" for index in range(60)])
    small, large = graph(*STEP), graph(*(f"{name}_large" for name in STEP))
    analysis = analysis_of(small * 4 + large * 3 + prefill + large * 2)
    names = step_names(analysis)
    assert [one[0] for one in names] == ["embed"] * 4 + ["embed_large"] * 5
    assert not any("prefill" in name for one in names for name in one)
    assert analysis.steps.following.tolist() == [1, 2, 3, 4, 5, 6, -1, 8, -1]


def test_streams_of_a_graph_may_interleave_differently() -> None:
    events = []
    for step in range(4):
        at = 10_000 + 1_000 * step
        events.append(call(10 * step, 10 * step + 5, step + 1, name="cudaGraphLaunch"))
        for place, name in enumerate(STEP):
            events.append(op(at + 10 * place, at + 10 * place + 5, step + 1, name=name))
        early = at + (15 if step % 2 else 35)
        events.append(op(early, early + 5, step + 1, name="side", stream=9))
    assert len(analyze(trace_of(*events)).steps) == 4


def test_eager_steps_are_cut_at_the_longest_wait_outside_the_layers() -> None:
    step = plain(*STEP, wait=300)
    # Within a layer, the device waits even longer.
    step[11] = ("cudaLaunchKernel", step[11][1], 800)
    analysis = analysis_of(step[20:] + step * 4 + step[:17])
    assert analysis.steps.source == "repetition"
    assert step_names(analysis) == [list(STEP)] * 4
    assert codes(analysis) == ["inferred_steps"]


def test_extra_ops_belong_to_the_cycle_they_are_in() -> None:
    step = plain(*STEP, wait=300)
    inside = step[:9] + plain("extra") + step[9:]
    behind = step + plain("extra")
    analysis = analysis_of(step * 4 + inside + step + behind + step * 2)
    sizes = [len(names) for names in step_names(analysis)]
    assert sizes == [36] * 4 + [37, 36, 37, 36, 36]
    assert analysis.steps.following.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, -1]


@pytest.mark.parametrize("launch", [graph, plain])
def test_two_steps_of_a_decoder_are_enough(launch: Callable[..., list[Launch]]) -> None:
    step = launch(*DECODER, wait=400)
    analysis = analysis_of(step * 2)
    assert step_names(analysis) == [list(DECODER)] * 2
    assert analysis.steps.following.tolist() == [1, -1]
    sampling = analysis_of((step + plain("sample", "copy_out")) * 2)
    assert step_names(sampling) == [[*DECODER, "sample", "copy_out"]] * 2
    prefill = launch(*[f"{name}_prompt" for name in DECODER])
    assert step_names(analysis_of(prefill + step * 2)) == [list(DECODER)] * 2


def test_each_thread_has_steps_of_its_own() -> None:
    step = plain(*STEP, wait=300)
    events = events_of(step * 4, tid=1) + events_of(step * 3, tid=2, device=1)
    analysis = analyze(trace_of(*events))
    assert sorted(set(analysis.steps.device.tolist())) == [0, 1]
    assert np.bincount(analysis.steps.device).tolist() == [4, 3]
    following = analysis.steps.following
    assert (
        analysis.steps.device[following[following >= 0]] == analysis.steps.device[following >= 0]
    ).all()


def _shuffled(launches: list[Launch]) -> list[Launch]:
    return random.Random(7).sample(launches, len(launches))


@pytest.mark.parametrize(
    "launches",
    [
        pytest.param(plain(*STEP) * 2, id="two cycles without products"),
        pytest.param(plain(*STEP), id="layers of one step"),
        pytest.param(plain(*DECODER), id="layers of one decoder's step"),
        pytest.param(graph(*DECODER), id="one graph launch"),
        pytest.param(graph(*STEP) * 2, id="two graph launches without products"),
        pytest.param(graph(*CONVOLVING) * 2, id="two graph launches with convolutions"),
        pytest.param(
            plain(*DECODER) * 2 + plain(*map(str, range(70))), id="two steps are the smaller part"
        ),
        pytest.param(plain(*LAYER) * 30, id="cycles without layers"),
        pytest.param(
            graph("a", "b", "c", "d", "e", "f", "g", "h") * 9, id="a graph without layers"
        ),
        pytest.param(plain("gemm") * 500, id="a repeated kernel"),
        pytest.param(plain("a", "b", "c") * 99, id="three names"),
        pytest.param(_shuffled(plain(*STEP) * 20), id="shuffled names"),
        pytest.param(
            plain(*STEP) * 3 + plain(*map(str, range(300))), id="steps are the smaller part"
        ),
        pytest.param([], id="nothing"),
    ],
)
def test_nothing_else_is_taken_for_steps(launches: list[Launch]) -> None:
    analysis = analysis_of(launches)
    assert (analysis.steps.source, len(analysis.steps)) == ("none", 0)
    assert "inferred_steps" not in codes(analysis)


def test_random_names_are_no_steps() -> None:
    numbers = random.Random(3)
    for kinds in (2, 4, 9, 40):
        names = [f"k{numbers.randrange(kinds)}" for _ in range(3_000)]
        assert len(analysis_of(plain(*names)).steps) == 0


def test_markers_win_over_graphs_and_repetition() -> None:
    events = events_of(graph(*STEP) * 5)
    analysis = analyze(trace_of(span(0, 20, "decode_step_0"), *events))
    assert (analysis.steps.source, analysis.steps.gpu_ops.tolist()) == ("markers", [72])


def test_ops_without_a_call_are_in_no_step() -> None:
    events = [*events_of(graph(*STEP) * 5), op(90_000, 90_010)]
    analysis = analyze(trace_of(*events))
    assert int((analysis.steps.op_step < 0).sum()) == 1


@pytest.mark.parametrize("variant", ["fused+graph", "fused+graph+int8"])
def test_captures_without_their_markers_have_the_same_steps(repository: Path, variant: str) -> None:
    path = repository / "analyzer" / "recordings" / f"h200-llama-3.2-1b-{variant}.dsrec"
    trace = loaded_once(path)
    marked = analyze(trace).steps
    found = analyze(replace(trace, ranges=trace.ranges.take(slice(0, 0)))).steps
    assert found.source == "graphs"
    assert found.op_step.tolist() == marked.op_step.tolist()


def test_foreign_traces_that_show_no_steps_have_none(foreign_traces: Path) -> None:
    for name in (
        "a100_eager.json.gz",
        "v100_cuda_graph.json.gz",
        "h100_2gpu_1s.sqlite",
        "mi300x_vllm_graph_capture.json.gz",
    ):
        trace = loaded_once(foreign_traces / name)
        found = analyze(replace(trace, ranges=trace.ranges.take(slice(0, 0)))).steps
        assert (found.source, len(found)) == ("none", 0), name
