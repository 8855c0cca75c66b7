"""A real CUDA capture, whose profile names operators only, beside the replays of its graph."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import Given, analyze, load
from decodescope.analyzer.attribution.capture_choice import NOT_USED
from decodescope.analyzer.structure.paths import LAYER_PART
from decodescope.analyzer.structure.step_structure import NO_LAYER
from decodescope.analyzer.trace import Trace

DATA = Path(__file__).parents[2] / "data"
STEPS, LAYERS, LAYER_OPS = 4, 6, 49


@pytest.fixture(scope="module")
def replays() -> Trace:
    return load(DATA / "h200_graph_replays.json.gz")


@pytest.fixture(scope="module")
def capture() -> Trace:
    return load(DATA / "h200_graph_capture.json.gz")


def test_every_replayed_op_has_its_module(replays: Trace, capture: Trace) -> None:
    analysis = analyze(replays, Given((capture,)))
    report, ranges = analysis.report, analysis.ranges
    structure = report.structure
    assert structure is not None
    assert (structure.source, structure.confidence) == ("capture", "exact")
    assert (structure.layers, structure.layer_ops) == (LAYERS, (LAYER_OPS,))
    replayed = analysis.launches.is_graph.sum()
    assert replayed == STEPS
    exact = report.attribution.exact if report.attribution else 0
    assert exact >= len(replays.ops) - STEPS
    # Layers found in the names alone are those of the modules.
    parts = [path.split("/") for path in ranges.paths]
    layer = [next((m[1] for p in part if (m := LAYER_PART.fullmatch(p))), None) for part in parts]
    for op, node in enumerate(ranges.op_node.tolist()):
        if layer[node] is not None:
            assert int(analysis.structure.layer[op]) == int(layer[node] or 0)
    inside = np.count_nonzero(analysis.structure.layer != NO_LAYER)
    assert inside == STEPS * LAYERS * LAYER_OPS


def test_without_the_capture_names_alone_find_the_layers(replays: Trace) -> None:
    report = analyze(replays).report
    assert report.structure is not None
    assert (report.structure.source, report.structure.layers) == ("repetition", LAYERS)
    assert report.attribution is not None
    assert report.attribution.exact <= STEPS


def test_a_capture_of_fewer_ops_is_not_used(replays: Trace, capture: Trace) -> None:
    """One layer more or less is another model, whatever the names of the operators."""
    step_ops = len(replays.ops) // STEPS
    place = np.arange(len(replays.ops)) % step_ops
    one_layer = (place >= 20) & (place < 20 + LAYER_OPS)
    fewer = replace(replays, ops=replays.ops.take(~one_layer))
    report = analyze(fewer, Given((capture,))).report
    assert [one.code for one in report.health.findings].count(NOT_USED) == 1
    assert report.structure is not None
    assert report.structure.source == "repetition"
