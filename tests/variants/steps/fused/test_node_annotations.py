"""Nodes of captured graphs are named with the paths of their operations, where torch offers it."""

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.attribution.ranges import replay_sources
from decodescope.analyzer.capture.profiler_session import with_node_paths
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.graph_reference import REFERENCE_KEY, GraphReference, ReferenceOp
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.fused_step import FusedStep
from decodescope.variants.steps.fused.node_annotations import offered_by, torch_annotations
from decodescope.variants.steps.fused.operations import step_operations
from decodescope.variants.steps.fused.program import PlacedOperation, StepGraph
from tests.helpers.fused_steps import fused, load_family
from tests.helpers.graphs.fake_cuda import (
    LOGGER,
    FakeAnnotations,
    FakeCuda,
    Kernels,
    LaterAnnotations,
    patch_torch,
    torchs_own,
)
from tests.helpers.kineto_events import Event, call, document, op, span

PATHS = (("model", "embedding"), ("model", "layer.0", "mlp"), ("model", "lm_head"))
POINTS = ("enable", "get", "enter", "exit", "resolve", "remap")


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    found = FakeCuda()
    patch_torch(monkeypatch, found)
    return found


@pytest.fixture(params=["fake", "torch's own"])
def torchs(request: pytest.FixtureRequest, cuda: FakeCuda) -> Any:
    if request.param == "fake":
        return FakeAnnotations(cuda)
    return torchs_own(cuda) or pytest.skip("this torch has no annotations of graph nodes")


@pytest.fixture
def said() -> Iterator[list[str]]:
    """What torch's module logs for all to see."""
    found: list[str] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler = Kept()
    LOGGER.addHandler(handler)
    yield found
    LOGGER.removeHandler(handler)


def graph_of(
    cuda: FakeCuda, annotations: Any, fails: Exception | None = None, counts: Any = (1, 2, 1)
) -> StepGraph:
    """A step of three operations, of which the second has two kernels."""
    operations = [Kernels(cuda, counts[0]), Kernels(cuda, counts[1], fails)]
    operations.append(Kernels(cuda, counts[2]))
    placed = [PlacedOperation(*one) for one in zip(PATHS, operations, strict=True)]
    return StepGraph(placed, LayerRanges(None), False, "fused+graph", lambda: annotations)


def replayed_paths(cuda: FakeCuda, step: StepGraph) -> list[str | None]:
    """The path of each op of the step's next replay."""
    cuda.replayed.clear()
    step.run()
    return [step.node_paths.get(node) for node in cuda.replayed]


ALL_PATHS = ["model/embedding", "model/layer.0/mlp", "model/layer.0/mlp", "model/lm_head"]


def test_each_op_of_a_replay_has_the_path_of_its_operation(cuda: FakeCuda, torchs: Any) -> None:
    step = graph_of(cuda, torchs)
    step.run()
    assert replayed_paths(cuda, step) == ALL_PATHS
    assert torchs.get_kernel_annotations() == {}


def test_later_versions_of_torch_are_asked_for_notes(cuda: FakeCuda) -> None:
    torchs = LaterAnnotations(cuda)
    assert offered_by(torchs)
    for counts in ((1, 2, 1), (3, 1, 1)):
        step = graph_of(cuda, torchs, counts=counts)
        step.run()
        names = ["/".join(path) for path in PATHS]
        assert replayed_paths(cuda, step) == [
            name for name, count in zip(names, counts, strict=True) for _ in range(count)
        ]
        assert torchs.get_kernel_annotations() == {}
    with pytest.raises(MissingRequirement, match="the stream is capturing"):
        graph_of(cuda, torchs, RuntimeError("the stream is capturing")).run()
    assert torchs.get_kernel_annotations() == {}
    plain = graph_of(cuda, None)
    plain.run()
    assert not cuda.annotating


def test_a_capture_that_refuses_to_note_is_made_without_notes(cuda: FakeCuda) -> None:
    cuda.refuses_annotations = True
    step = graph_of(cuda, LaterAnnotations(cuda))
    step.run()
    assert replayed_paths(cuda, step) == [None] * 4
    assert step.node_paths == {}


def test_captures_that_cannot_be_asked_for_notes_have_none(
    cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, capture_error_mode: None)
    assert not offered_by(LaterAnnotations(cuda))


def test_without_annotations_nothing_is_asked_of_torch(cuda: FakeCuda) -> None:
    step = graph_of(cuda, None)
    step.run()
    assert replayed_paths(cuda, step) == [None] * 4
    assert step.node_paths == {}


@pytest.mark.parametrize("point", POINTS)
def test_an_error_of_torchs_module_costs_the_names_and_nothing_else(
    cuda: FakeCuda, point: str, said: list[str]
) -> None:
    broken = FakeAnnotations(cuda)
    broken.fails_at = point
    step = graph_of(cuda, broken)
    step.run()
    assert replayed_paths(cuda, step) == [None] * 4
    assert step.node_paths == {}
    assert said == []
    assert broken.notes == {}
    assert bool(broken.pending) == (point == "resolve")

    broken.fails_at = ""
    again = graph_of(cuda, broken, counts=(1, 1, 1))
    again.run()
    assert replayed_paths(cuda, again) == ["/".join(path) for path in PATHS]
    assert len(again.node_paths) == 3
    assert broken.notes == {}


@pytest.mark.parametrize("point", ["", *POINTS])
def test_a_failed_capture_says_its_own_error_and_leaves_no_names(
    cuda: FakeCuda, point: str
) -> None:
    torchs = FakeAnnotations(cuda)
    torchs.fails_at = point
    with pytest.raises(MissingRequirement, match="the stream is capturing"):
        graph_of(cuda, torchs, RuntimeError("the stream is capturing"), (9, 1, 1)).run()
    torchs.fails_at = ""
    assert torchs.notes == {}
    assert bool(torchs.pending) == (point == "resolve")
    step = graph_of(cuda, torchs)
    step.run()
    assert replayed_paths(cuda, step) == ALL_PATHS
    assert len(step.node_paths) == 4
    assert torchs.notes == {}


def test_a_capture_that_failed_elsewhere_names_nothing_here(cuda: FakeCuda, torchs: Any) -> None:
    if cuda.noting is None:
        torchs.enable_annotations()
    with cuda.capture(SimpleNamespace(), "thread_local"), torchs.mark_kernels("elsewhere"):
        for _ in range(9):
            cuda.launch()
    step = graph_of(cuda, torchs)
    step.run()
    assert replayed_paths(cuda, step) == ALL_PATHS
    assert len(step.node_paths) == 4
    assert torchs.get_kernel_annotations() == {}


def test_running_out_of_memory_stays_what_it_is(cuda: FakeCuda, torchs: Any) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        graph_of(cuda, torchs, torch.OutOfMemoryError("full")).run()
    assert torchs.get_kernel_annotations() == {}


def test_a_number_that_comes_again_names_the_nodes_of_the_later_graph(
    cuda: FakeCuda, torchs: Any
) -> None:
    first = graph_of(cuda, torchs)
    first.run()
    cuda.close(first._graph)
    later = graph_of(cuda, torchs, counts=(1, 1, 3))
    later.run()
    assert later.node_paths.keys() & first.node_paths.keys()
    head = "model/lm_head"
    assert replayed_paths(cuda, later) == ["model/embedding", "model/layer.0/mlp", *[head] * 3]


def test_two_graphs_keep_their_own_names(cuda: FakeCuda, torchs: Any) -> None:
    steps = [graph_of(cuda, torchs), graph_of(cuda, torchs, counts=(3, 1, 1))]
    for step in steps:
        step.run()
    assert not steps[0].node_paths.keys() & steps[1].node_paths.keys()
    assert replayed_paths(cuda, steps[0]) == ALL_PATHS
    assert replayed_paths(cuda, steps[1])[:3] == ["model/embedding"] * 3


def test_the_notes_of_others_stay(cuda: FakeCuda, torchs: Any) -> None:
    theirs, gone = {"module_fqn": "layers.0"}, {"str": "model/lm_head"}
    # Number 2 is the one that the step's graph gets.
    noted = {(50 << 32) + 1: theirs, (2 << 32) + 1: gone, (2 << 32) + 9: gone}
    if cuda.noting is None:
        torchs.get_kernel_annotations().update({node: [note] for node, note in noted.items()})
    else:
        for node, note in noted.items():
            torchs.record_node_annotation(node, note)
    step = graph_of(cuda, torchs)
    step.run()
    assert replayed_paths(cuda, step) == ALL_PATHS
    # From 2.15 on, torch drops those of a graph that is gone.
    left = {} if cuda.noting else {(2 << 32) + 9: [gone]}
    assert dict(torchs.get_kernel_annotations()) == {(50 << 32) + 1: [theirs]} | left
    assert len(step.node_paths) == 4


def test_what_torch_offers_is_asked_of_its_module(cuda: FakeCuda, said: list[str]) -> None:
    module = FakeAnnotations(cuda)
    assert offered_by(module)
    module.fails_at = "ask"
    assert not offered_by(module)
    assert said == []
    assert not LOGGER.disabled
    assert not offered_by(SimpleNamespace())
    assert not offered_by(SimpleNamespace(_is_tools_id_unavailable=lambda: False))


def test_old_bindings_of_cuda_offer_nothing_and_say_nothing(
    cuda: FakeCuda, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = torchs_own(cuda)
    if module is None:
        pytest.skip("this torch has no annotations of graph nodes")
    assert offered_by(module)
    module._tools_id_available, module._cuda_runtime = None, SimpleNamespace()
    monkeypatch.setattr(module.importlib.metadata, "version", lambda name: "12.9")
    assert module._is_tools_id_unavailable()
    assert len(said) == 1
    said.clear()
    module._tools_id_available = None
    assert not offered_by(module)
    assert said == []


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch has CUDA")
def test_a_torch_without_cuda_offers_nothing() -> None:
    assert torch_annotations() is None


def test_a_step_has_the_paths_of_all_its_graphs(device: str) -> None:
    workload = DecodeWorkload(1, 2, 4, "fp32")
    loaded = load_family("llama2", device)
    plain = fused(loaded, workload)
    assert plain.node_paths() == {}
    step = FusedStep(loaded, workload, plain.plan, graphed=True)
    for number, keep_logits in enumerate((False, True)):
        step._program(keep_logits).node_paths = {number: f"model/{keep_logits}"}
    assert step.node_paths() == {0: "model/False", 1: "model/True"}


def window(nodes: list[int], paths: list[str]) -> bytes:
    """The trace of two steps that replay these nodes, with the reference of the step."""
    events: list[Event] = []
    for at in (0, 100_000):
        events += [span(at, at + 90, "decode_step"), span(at + 2, at + 80, "model")]
        events.append(call(at + 10, at + 50, at + 1, name="cudaGraphLaunch"))
        for k, node in enumerate(nodes):
            start = at + 1_000 + 10 * k
            more = {"graph id": node >> 32, "graph node id": node}
            events.append(op(start, start + 6, at + 1, name=f"kernel_{k % 5}", **more))
    rows = (ReferenceOp(7, f"kernel_{k % 5}", f"decode_step/{p}") for k, p in enumerate(paths))
    return document(events, **{REFERENCE_KEY: msgspec.to_builtins(GraphReference(tuple(rows)))})


def paths_of(analysis: Analysis) -> list[str]:
    return [analysis.ranges.paths[node] for node in analysis.ranges.op_node.tolist()]


def analysed(text: bytes) -> Analysis:
    return analyze(read_kineto_bytes(text, "window.json"))


def test_the_path_of_every_operation_reaches_the_trace_and_is_read_back(
    cuda: FakeCuda, torchs: Any, device: str
) -> None:
    plan = fused(load_family("qwen3", device), DecodeWorkload(2, 1, 2, "fp32")).plan
    operations = step_operations(plan)
    placed = [PlacedOperation(one.path, Kernels(cuda)) for one in operations]
    step = StepGraph(placed, LayerRanges(None), True, "fused+graph", lambda: torchs)
    step.run()
    step.run()
    paths = ["/".join(one.path) for one in operations]
    assert len(paths) > 10

    plain = window(cuda.replayed, paths)
    annotated = b"".join(with_node_paths([plain], step.node_paths))
    events = json.loads(annotated)["traceEvents"]
    assert [one["args"]["str"] for one in events if one["cat"] == "kernel"] == paths * 2

    # The step's own reference decides, and nothing else changes.
    before, after = analysed(plain), analysed(annotated)
    assert after.report == before.report
    assert paths_of(after) == [f"decode_step/{path}" for path in paths * 2]
    assert replay_sources(after.trace, after.ranges.reference_op) == {"step": 2 * len(paths)}

    alone = analysed(annotated.replace(REFERENCE_KEY.encode(), b"of_someone_else"))
    assert paths_of(alone) == paths_of(after)
    assert replay_sources(alone.trace, alone.ranges.reference_op) == {"annotations": 2 * len(paths)}
    assert alone.report.attribution == after.report.attribution
