"""Captures whose paths tell nothing apart, as those of torch.compile, and others."""

from dataclasses import replace

import msgspec
import pytest

from decodescope.analyzer import Analysis, Given, analyze
from decodescope.analyzer.attribution.capture_choice import TELLS_NOTHING
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.captures import (
    MARKER,
    Node,
    attributed,
    capture_of,
    captured,
    kernels,
    model,
    module,
    replays,
)
from tests.helpers.kineto_events import PID, event, trace_of

NODES = model(5)
# As torch 2.11 and torch 2.13 name it.
WRAPPERS = ("CUDAGraphNode.record", "CUDAGraphNode.record (dynamo_timed)")
COMPILED = "## Call CompiledFxGraph f4ii27ddivzklx ##"


def compiled(nodes: list[Node], wrapper: str, *, at: int = 0, number: int = 1) -> Trace:
    """A profile of a capture by torch.compile: kernels without names, below the one operator of
    torch's CUDA graph trees."""
    bare = [(name, (), "") for name, _, _ in nodes]
    events = captured(bare, at=at, number=number, named=False)
    end = at + 10 * len(nodes) + 20
    around = [
        event("cpu_op", wrapper, at + 1, end, PID, 1),
        event("user_annotation", COMPILED, at, end + 1, PID, 1),
    ]
    return trace_of(*events, *around)


def told(analysis: Analysis) -> list[str]:
    findings = analysis.report.health.findings
    return [one.message for one in findings if one.code == TELLS_NOTHING]


def analysed(nodes: list[Node], *profiles: Trace) -> Analysis:
    return analyze(trace_of(*replays(kernels(nodes))), Given(profiles))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_capture_of_a_compiled_model_says_that_it_names_nothing(wrapper: str) -> None:
    analysis = analysed(NODES, compiled(NODES, wrapper))
    paths = {analysis.ranges.paths[node] for node in analysis.ranges.op_node.tolist()}
    assert paths == {f"{MARKER}/CompiledFxGraph f4ii27dd/{wrapper}"}
    (message,) = told(analysis)
    assert message == (
        f"the capture hand-made.json names nothing below {wrapper} for 22 of 22 nodes, so it does "
        "not tell the ops of a graph apart; for modules, record trace and capture without "
        "torch.compile and with Python stacks"
    )
    assert analysis.report.health.status == "ok"
    assert attributed(analysis).exact == len(NODES)


def test_a_capture_that_names_modules_or_operators_says_nothing() -> None:
    without_stacks: list[Node] = [(name, (), operator) for name, _, operator in NODES]
    for nodes in (NODES, without_stacks):
        assert told(analysed(NODES, capture_of(captured(nodes)))) == []


@pytest.mark.parametrize(("others", "says"), [(2, True), (3, False)])
def test_nearly_all_nodes_alike_are_all_alike(others: int, says: bool) -> None:
    """2 of 22 nodes are less than a tenth, 3 are more."""
    nodes: list[Node] = [
        (name, ("Model_0",), operator if place < others else "")
        for place, (name, _, operator) in enumerate(model(5, kernels=("a", "b", "c", "d")))
    ]
    assert len({operator for _, _, operator in nodes}) == others + 1
    messages = told(analysed(nodes, capture_of(captured(nodes))))
    assert [
        f"names nothing below Model_0 for {22 - others} of 22 nodes" in one for one in messages
    ] == [True] * says


def test_a_node_without_any_path_is_named_nothing() -> None:
    bare: list[Node] = [(name, (), "") for name, _, _ in NODES]
    (message,) = told(analysed(NODES, capture_of(captured(bare))))
    assert "names nothing for 22 of 22 nodes" in message


def test_pieces_that_each_have_one_path_tell_nothing_either() -> None:
    """Below a module for each layer, the layer is known and nothing in it."""
    pieces = [NODES[:6], NODES[6:14], NODES[14:]]
    events = []
    for place, piece in enumerate(pieces):
        bare: list[Node] = [(name, (), "") for name, _, _ in piece]
        events += captured(bare, at=10 + 300 * place, number=1 + 100 * place)
        events.append(module(10 + 300 * place, 300 + 300 * place, f"Layer_{place}"))
    profile = trace_of(module(0, 2_000, "Model_0"), *events)
    trace = trace_of(*replays(*(kernels(piece) for piece in pieces)))
    (message,) = told(analyze(trace, Given((profile,))))
    assert "names nothing below Layer_0 for 22 of 22 nodes" in message


def test_graphs_of_one_node_have_nothing_to_tell_apart() -> None:
    nodes: list[Node] = [("gemm", ("Model_0",), "aten::mm")]
    analysis = analysed(nodes, capture_of(captured(nodes)))
    assert attributed(analysis).exact == 1
    assert told(analysis) == []


def test_only_the_file_that_is_used_is_spoken_of() -> None:
    """The one of another model is not used, which another finding says."""
    right = capture_of(captured(NODES))
    source = msgspec.structs.replace(right.source, path="compiled.json")
    unused = replace(compiled(model(7), WRAPPERS[0]), source=source)
    assert told(analysed(NODES, right, unused)) == []
    used = replace(compiled(NODES, WRAPPERS[0]), source=source)
    (message,) = told(analysed(NODES, used))
    assert message.startswith("the capture compiled.json names nothing")
