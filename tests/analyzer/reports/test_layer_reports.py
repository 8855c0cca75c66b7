"""The time of each layer, compared with a loop over the ops, and with the busy time of the step."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.comparing.pair_changes import step_changes
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.trace import GpuOps, Trace
from tests.helpers.planted.step_reports import assert_adds_up, bundled
from tests.helpers.read_once import analysed_once

FOREIGN = (
    "mi300x_vllm_decode_graph.json.gz",
    "h200_llama1b_hf_eager.json.gz",
    "h100_qwen1.5_0.5b_eager.json.gz",
)


def check(found: Analysis) -> None:
    report = found.report
    assert report.structure is not None
    assert report.structure.step is not None
    step = report.steps[report.structure.step]
    layers = report.layers
    assert sum(row.ns_per_step for row in layers) == step.busy_ns
    assert sum(row.ops for row in layers if row.layer != "outside") == step.gpu_ops
    numbered = [row for row in layers if isinstance(row.layer, int)]
    assert [row.layer for row in numbered] == list(range(report.structure.layers))
    ops = {row.layer: row.ops for row in layers}
    assert ops.get("prologue", 0) == report.structure.prologue_ops
    assert ops.get("epilogue", 0) == report.structure.epilogue_ops
    motifs = [row.motif for row in numbered]
    assert tuple(map(motifs.count, dict.fromkeys(motifs))) == report.structure.motif_layers
    assert {row.layer: row.ns_per_step for row in layers if row.ns_per_step} == by_hand(found)


def by_hand(found: Analysis) -> dict[int | str, int]:
    """Each op counts from where the ops before it end, and inside the span only."""
    assert found.report.structure is not None
    step, steps, ops = found.report.structure.step, found.steps, found.trace.ops
    assert step is not None
    span = int(steps.span.start_ns[step]), int(steps.span.end_ns[step])
    times: dict[int | str, int] = {}
    latest = span[0]
    for row in range(len(ops)):
        start, end = int(ops.start_ns[row]), int(ops.end_ns[row])
        if ops.device[row] not in steps.devices[step] or start >= span[1]:
            continue
        ns = max(min(end, span[1]) - max(start, latest), 0)
        latest = max(latest, min(end, span[1]))
        layer = int(found.structure.layer[row])
        place: int | str = layer if layer >= 0 else "epilogue"
        if steps.op_step[row] != step:
            place = "outside"
        elif found.structure.prologue[row]:
            place = "prologue"
        if ns:
            times[place] = times.get(place, 0) + ns
    return times


@pytest.mark.parametrize("path", bundled_recordings(), ids=lambda path: path.stem)
def test_layers_of_recordings(path: Path) -> None:
    check(analysed_once(path))


@pytest.mark.parametrize("name", FOREIGN)
def test_layers_of_foreign_traces(name: str, foreign_traces: Path) -> None:
    check(analysed_once(foreign_traces / name))


def on_two_devices(trace: Trace, alike: bool) -> Trace:
    """The ops of a trace once more, 10 ns later on another device: as they are, or nameless."""
    ops = trace.ops
    name = ops.name if alike else np.full_like(ops.name, len(trace.names))
    later = replace(
        ops, start_ns=ops.start_ns + 10, end_ns=ops.end_ns + 10, device=ops.device + 1, name=name
    )
    both = GpuOps.concatenate((ops, later))
    order = np.lexsort((both.device, both.start_ns))
    return replace(trace, ops=both.take(order), names=(*trace.names, "unlike the others"))


@pytest.mark.parametrize("alike", [True, False])
def test_layers_of_two_devices(alike: bool) -> None:
    one, trace = analyze(bundled("compiled")), on_two_devices(bundled("compiled"), alike)
    found = analyze(trace)
    report = found.report
    assert report.structure is not None
    step = report.structure.step
    assert step is not None
    assert sum(row.ns_per_step for row in report.layers) == report.steps[step].busy_ns
    ops = {row.layer: row.ops for row in report.layers}
    single = {row.layer: row.ops for row in one.report.layers}
    whole = sum(single.values())
    assert ops == (
        {layer: 2 * n for layer, n in single.items()} if alike else single | {"outside": whole}
    )
    changes = step_changes(one.report, report)
    assert changes is not None
    assert_adds_up(changes)


def test_an_op_of_the_step_before_is_outside() -> None:
    traces = map(bundled, ("compiled", "fused+graph+fp8_e4m3", "fused+graph"))
    before = next(found for found in map(analyze, traces) if found.median_step)
    trace, step = before.trace, before.median_step
    assert step is not None
    last = int(np.flatnonzero(before.steps.op_step == step - 1)[-1])
    end_ns = trace.ops.end_ns.copy()
    end_ns[last] = before.steps.span.start_ns[step] + 500
    found = analyze(replace(trace, ops=replace(trace.ops, end_ns=end_ns)))
    assert found.median_step == step
    outside = [row for row in found.report.layers if row.layer == "outside"]
    assert [(row.ns_per_step, row.ops) for row in outside] == [(500, 0)]
    assert sum(row.ns_per_step for row in found.report.layers) == found.report.steps[step].busy_ns


def test_without_layers_there_are_no_rows(foreign_traces: Path) -> None:
    assert analysed_once(foreign_traces / "v100_cuda_graph.json.gz").report.layers == ()
