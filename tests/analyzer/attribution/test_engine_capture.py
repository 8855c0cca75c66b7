"""The capture profile of a serving engine (vLLM on an MI300X) beside the trace of its replay."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from decodescope.analyzer import Analysis, Given, analyze, load
from decodescope.analyzer.attribution.capture_choice import NOT_USED
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.report import Attribution, Finding
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.captures import attributed

LAYERS = 24


def not_used(analysis: Analysis) -> list[Finding]:
    """Why captures were not used."""
    return [one for one in analysis.report.health.findings if one.code == NOT_USED]


@pytest.fixture(scope="module")
def pair(foreign_traces: Path) -> tuple[Trace, bytes]:
    names = ("mi300x_vllm_decode_graph", "mi300x_vllm_graph_capture")
    replay, capture = (foreign_traces / f"{name}.json.gz" for name in names)
    if not capture.exists() or not replay.exists():
        pytest.skip(f"needs the foreign trace {capture}")
    return load(replay), gzip.decompress(capture.read_bytes())


@pytest.fixture(scope="module")
def profile(pair: tuple[Trace, bytes]) -> Trace:
    """The capture, read."""
    return read_kineto_bytes(pair[1], "capture.json")


@pytest.fixture(scope="module")
def whole(pair: tuple[Trace, bytes], profile: Trace) -> Analysis:
    """The replay with the whole capture."""
    return analyze(pair[0], Given((profile,)))


def changed(capture: bytes, **names: str) -> bytes:
    for old, new in names.items():
        capture = capture.replace(old.encode(), new.encode())
    return capture


def test_every_op_of_the_replay_has_a_path(whole: Analysis) -> None:
    assert attributed(whole) == Attribution(exact=434, partial=0, none=0)
    trace = whole.trace
    ranges, names = whole.ranges, trace.names
    pieces = [
        ranges.paths[node].split("/GraphModule_0/")[1]
        for node, name in zip(ranges.op_node.tolist(), trace.ops.name.tolist(), strict=True)
        if names[name].startswith("kernel_unified_attention")
    ]
    # An independent count: attention is what lies between compiled pieces, once a layer.
    called = [f"GraphModule_0[{n}]/vllm::unified_attention_with_output" for n in range(LAYERS)]
    assert pieces == called
    assert not_used(whole) == []


def test_the_work_of_products_is_that_of_the_shapes_in_the_capture(
    pair: tuple[Trace, bytes], profile: Trace
) -> None:
    """gpt-oss-20b at batch 32: qkv, o and router of each layer; lm_head is outside of it."""
    analysis = analyze(pair[0], Given((profile,), guess=False))
    rows = {part.part: part for part in analysis.report.answer.parts}
    sizes = {"qkv": (5120, 2880), "o": (2880, 4096), "router": (32, 2880)}
    for role, (outputs, inputs) in sizes.items():
        elements = 32 * inputs + outputs * inputs + 32 * outputs
        assert rows[role].bytes == LAYERS * 2 * (elements + outputs)
        assert rows[role].flops == LAYERS * 2 * 32 * outputs * inputs
    assert rows["head"].flops == 2 * 32 * 201_088 * 2880
    answer = analysis.report.answer
    assert (answer.model_source, answer.limit_is_lower_bound) == ("shapes", True)
    assert answer.limit_ns == sum(row.limit_ns or 0 for row in rows.values())


def test_without_kernel_names_operators_decide(pair: tuple[Trace, bytes], whole: Analysis) -> None:
    trace, capture = pair
    document: dict[str, Any] = json.loads(capture)
    for one in document["traceEvents"]:
        one.get("args", {}).pop("kernel", None)
    unnamed = read_kineto_bytes(json.dumps(document).encode(), "a")
    found = analyze(trace, Given((unnamed,)))
    assert found.ranges.paths == whole.ranges.paths
    assert (found.ranges.op_node == whole.ranges.op_node).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [("capture_32_FULL", "capture_64_FULL"), ("Cijk_Alik_Bljk_BBS_BH", "Cijk_Other_BBS_BH")],
)
def test_captures_that_do_not_fit_are_not_used(
    pair: tuple[Trace, bytes], old: str, new: str
) -> None:
    trace, capture = pair
    other = read_kineto_bytes(changed(capture, **{old: new}), "capture.json")
    analysis = analyze(trace, Given((other,)))
    assert attributed(analysis) == Attribution(exact=13, partial=0, none=421)
    (finding,) = not_used(analysis)
    assert finding.code == "capture_not_used"
    assert "capture.json" in finding.message


@pytest.mark.parametrize("share", [0.3, 0.955, 0.97, 0.999])
def test_a_truncated_capture_gives_right_paths_or_none(
    pair: tuple[Trace, bytes], whole: Analysis, share: float
) -> None:
    trace, capture = pair
    cut = read_kineto_bytes(capture[: int(share * len(capture))], "a")
    if share < 0.96:
        with pytest.raises(InputError, match="no captured launches"):
            analyze(trace, Given((cut,)))
        return
    found = analyze(trace, Given((cut,)))
    assert attributed(found).exact == 13
    for op in (found.ranges.reference_op >= 0).nonzero()[0].tolist():
        path = found.ranges.paths[int(found.ranges.op_node[op])].split("/")
        right = whole.ranges.paths[int(whole.ranges.op_node[op])].split("/")
        # A name of which only one instance is left has no number.
        assert all(a == b or f"{a}[0]" == b for a, b in zip(path, right, strict=True))


def test_several_captures_and_the_trace_itself(pair: tuple[Trace, bytes], profile: Trace) -> None:
    trace, capture = pair
    wrong = read_kineto_bytes(changed(capture, capture_32_FULL="capture_16_FULL"), "wrong.json")
    analysis = analyze(trace, Given((wrong, profile)))
    assert attributed(analysis).exact == 434
    (finding,) = not_used(analysis)
    assert finding.message.startswith("the capture wrong.json is not used: it captured batch 16")
    again = analyze(trace, Given((profile, profile)))
    assert attributed(again).exact == 434
    assert not_used(again) == []


def test_python_functions_of_a_capture_are_no_ranges(profile: Trace) -> None:
    assert profile.source.events > 130_000
    assert len(profile.ranges) < 100
    assert not any(".py(" in profile.names[name] for name in profile.ranges.name.tolist())
