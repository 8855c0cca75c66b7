"""Layers and roles in reports: of our own runs with ranges and without, of engines, of no model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.names.rules import FAMILIES, ROLES
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.answer import AnswerPart
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.step_annotations import is_step_name
from decodescope.analyzer.trace import Trace
from tests.helpers.read_once import analysed_once, loaded_once
from tests.helpers.recorded.decode_ops import allowed_roles

RECORDINGS = {
    path.stem: path for path in bundled_recordings() if path.stem.startswith("h200-llama-3.2-1b")
}


def without_ranges(trace: Trace) -> Trace:
    """The trace with its step markers only, and no reference."""
    names = [is_step_name(name) for name in trace.names]
    marks = np.array(names, dtype=np.bool_)[trace.ranges.name]
    return replace(trace, ranges=trace.ranges.take(marks), reference=None)


def check_sums(report: Report) -> None:
    assert report.structure is not None
    if report.structure.step is not None:
        busy_ns = report.steps[report.structure.step].busy_ns
        assert sum(part.ns for part in busy_parts(report)) == busy_ns
    assert {part.part for part in busy_parts(report) if part.confidence != "none"} <= {
        *ROLES,
        "memcpy",
    }
    assert {part.part for part in busy_parts(report)} <= {*ROLES, *FAMILIES, "memcpy"}


def busy_parts(report: Report) -> list[AnswerPart]:
    return [part for part in report.answer.parts if part.kernel is not None]


@pytest.mark.parametrize("name", RECORDINGS)
def test_our_own_runs_agree_with_their_ranges(name: str) -> None:
    whole = analysed_once(RECORDINGS[name])
    structure = whole.report.structure
    assert structure is not None
    assert (structure.source, structure.layers, structure.confidence) == ("ranges", 16, "exact")
    check_sums(whole.report)
    bare = analyze(without_ranges(whole.trace))
    alone = bare.report.structure
    assert alone is not None
    assert alone.source == "repetition"
    assert (alone.layers, alone.layer_ops) == (structure.layers, structure.layer_ops)
    assert (alone.prologue_ops, alone.epilogue_ops) == (
        structure.prologue_ops,
        structure.epilogue_ops,
    )
    assert busy_parts(bare.report) == busy_parts(whole.report)
    assert agreement(whole, bare) >= 0.98


def agreement(whole: Analysis, bare: Analysis) -> float:
    """The share of the compared time whose role, found without ranges, the ranges allow."""
    compared = agreed = 0
    ops, ranges = whole.trace.ops, whole.ranges
    for op in np.flatnonzero(whole.steps.op_step >= 0).tolist():
        node = int(ranges.op_node[op])
        allowed = allowed_roles(ranges.paths[node]) if node >= 0 else None
        if allowed is not None:
            compared += int(ops.length_ns[op])
            role = ROLES[bare.structure.role[op]]
            agreed += int(ops.length_ns[op]) if role in allowed else 0
    assert compared > 0.9 * int(ops.length_ns[whole.steps.op_step >= 0].sum())
    return agreed / compared


def test_ranges_are_inferred_where_there_are_none() -> None:
    trace = loaded_once(RECORDINGS["h200-llama-3.2-1b-fused+graph"])
    inferred = analyze(without_ranges(trace)).report
    paths = {row.path: row for row in inferred.ranges}
    assert {f"decode_step/layer.{layer}/attention" for layer in range(16)} <= set(paths)
    row = paths["decode_step/layer.3/gate_up"]
    assert (row.kind, row.confidence, row.gpu_ops) == ("inferred", "partial", 3)
    assert paths["decode_step/epilogue/head"].gpu_ops == 3
    known = analyze(trace).report
    assert not [row for row in known.ranges if row.kind == "inferred"]


def test_a_serving_engine(foreign_traces: Path) -> None:
    report = analysed_once(foreign_traces / "mi300x_vllm_decode_graph.json.gz").report
    check_sums(report)
    structure = report.structure
    assert structure is not None
    assert (structure.source, structure.layers) == ("repetition", 24)
    assert (structure.layer_ops, structure.motif_layers) == ((17, 18), (12, 12))
    (kind,) = report.step_kinds
    assert (kind.kind, kind.batch, kind.kv_tokens) == ("decode", 32, 55_086)
    known = sum(part.share for part in report.answer.parts if part.confidence != "none")
    assert known >= 0.97
    share = {part.part: part.share for part in report.answer.parts}
    assert share["experts"] > 0.6
    assert share["head"] == pytest.approx(276_678 / 10_743_181)


@pytest.mark.parametrize(
    ("name", "layers", "source"),
    [("h200_llama1b_hf_eager", 16, "repetition"), ("h100_qwen1.5_0.5b_eager", 24, "ranges")],
)
def test_eager_transformers(foreign_traces: Path, name: str, layers: int, source: str) -> None:
    analysis = analysed_once(foreign_traces / f"{name}.json.gz")
    check_sums(analysis.report)
    structure = analysis.report.structure
    assert structure is not None
    assert (structure.layers, structure.source, structure.confidence) == (layers, source, "exact")
    bare = analyze(without_ranges(analysis.trace)).report
    assert bare.structure is not None
    assert (bare.structure.layers, bare.structure.source) == (layers, "repetition")
    assert bare.structure.layer_ops == structure.layer_ops
    if source == "ranges":
        assert agreement(analysis, analyze(without_ranges(analysis.trace))) >= 0.98


@pytest.mark.parametrize(
    "name", ["a100_eager", "v100_cuda_graph", "cpu_only", "a100_triton_small", "legacy_categories"]
)
def test_no_layers_are_invented(foreign_traces: Path, name: str) -> None:
    report = analysed_once(foreign_traces / f"{name}.json.gz").report
    assert report.structure is not None
    assert (report.structure.source, report.structure.layers) == ("none", 0)
    assert not [row for row in report.ranges if row.kind == "inferred"]
    check_sums(report)
