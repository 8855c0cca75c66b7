"""The nodes of captured graphs and their paths."""

from dataclasses import replace

import msgspec
import pytest

from decodescope.analyzer.attribution.capture_paths import capture_reference
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.graph_reference import ReferenceOp
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign.captures import (
    capture_of,
    captured,
    kernels,
    launch,
    model,
    module,
    paths_of,
)
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of


def found(*traces: Trace) -> list[tuple[str, str]]:
    return [(one.name, one.path) for one in capture_reference(traces).ops]


def test_nodes_are_the_calls_between_begin_and_end_in_order() -> None:
    nodes = [*model(3), ("Memcpy", ("Model_0",), "aten::copy_"), ("Memset", (), "")]
    names = [*kernels(nodes[:-2]), "memcpy", "memset"]
    before = [launch(1, 900, "warm-up"), op(2, 3, 900, name="warm-up")]
    after = [launch(5_000, 901, "behind"), op(5_001, 5_002, 901, name="behind")]
    trace = capture_of(before, captured(nodes, around="capture_32_FULL"), after)
    paths = paths_of(nodes)[:-1]
    assert found(trace) == list(zip(names, [*paths, ""], strict=True))
    (graph,) = capture_reference((trace,)).graphs
    assert (graph.label, graph.batch, graph.ops, graph.cut) == ("capture_32_FULL", 32, 16, False)


def test_a_call_that_ran_while_another_stream_captured_is_no_node() -> None:
    events = captured(model(1))
    ran = [launch(14, 500, "elsewhere"), op(20, 30, 500, name="elsewhere")]
    assert [name for name, _ in found(capture_of(events, ran))] == kernels(model(1))


def test_a_driver_call_below_a_runtime_call_is_no_second_node() -> None:
    inner = call(14, 15, 11, name="cuLaunchKernel")
    assert len(found(capture_of(captured(model(1), named=False), [inner]))) == len(model(1))


def test_instances_of_a_name_are_numbered_only_where_they_have_nodes_and_are_several() -> None:
    events = captured([(f"k{n}", (), "") for n in range(4)])
    events += [
        module(0, 100, "Model_0"),
        module(11, 19, "Piece_0"),
        module(21, 29, "Piece_0"),
        module(31, 32, "Piece_0"),
        module(35, 39, "Other_0"),
        module(41, 49, "Piece_0"),
    ]
    events[-2] = module(31, 39, "Other_0")
    events[-3] = module(30, 31, "Piece_0")
    assert [path for _, path in found(trace_of(*events))] == [
        "Model_0/Piece_0[0]",
        "Model_0/Piece_0[1]",
        "Model_0/Other_0",
        "Model_0/Piece_0[2]",
    ]


def test_compiled_pieces_have_their_short_name_and_the_capture_has_no_part() -> None:
    events = captured([("a", (), ""), ("b", (), "")], around="capture_8_PIECEWISE")
    events += [span(-5, 900, "ProfilerStep#2")]
    events += [
        span(10 + 10 * n, 19 + 10 * n, "## Call CompiledFxGraph f4ii27ddivzklx ##")
        for n in range(2)
    ]
    assert [path for _, path in found(trace_of(*events))] == [
        "CompiledFxGraph f4ii27dd[0]",
        "CompiledFxGraph f4ii27dd[1]",
    ]


def test_the_operator_is_the_outermost_below_the_innermost_range() -> None:
    events = captured([("k", ("Model_0",), "")])
    events += [
        event("cpu_op", "custom::whole", 8, 40, PID, 1),
        event("cpu_op", "aten::linear", 11, 18, PID, 1),
        event("cpu_op", "aten::addmm", 12, 17, PID, 1),
    ]
    assert found(trace_of(*events)) == [("k", "Model_0/aten::linear")]


def test_an_operator_on_another_thread_is_found_by_its_external_id() -> None:
    events = captured([("k", (), "")])
    operator = event("cpu_op", "aten::mm", 0, 1, PID, 2, **{"External id": 10_011})
    assert found(trace_of(*events, operator)) == [("k", "aten::mm")]


def test_pieces_captured_below_one_module_are_one_group_and_batches_apart() -> None:
    pieces = [("a", (), ""), ("b", (), "")]
    first = [*captured(pieces, number=1), *captured(pieces, at=50, number=100)]
    second = captured(pieces, at=200, number=200)
    modules = [module(0, 150, "Model_0"), module(196, 280, "Model_0")]
    reference = capture_reference((trace_of(*first, *second, *modules),))
    assert [graph.group for graph in reference.graphs] == [0, 0, 1]
    assert {one.path for one in reference.ops} == {"Model_0"}


def test_sglang_names_the_batch_in_the_file() -> None:
    trace = capture_of(captured(model(1)))
    source = msgspec.structs.replace(trace.source, path="captures/bs_16_rank0.json.gz")
    assert capture_reference((replace(trace, source=source),)).graphs[0].batch == 16


def test_kernels_of_cuda_have_no_name_but_an_operator() -> None:
    nodes = [*model(1), ("Memcpy", (), "aten::copy_")]
    ops = capture_reference((capture_of(captured(nodes, named=False)),)).ops
    assert [one.name for one in ops] == [""] * len(model(1)) + ["memcpy"]
    assert ops[1] == ReferenceOp(0, "", "Model_0/Layer_0/aten::norm", operator="aten::norm")


@pytest.mark.parametrize("events", [[], [launch(1, 1, "k")], [launch(1, 1, "k"), op(2, 3, 1)]])
def test_a_file_without_captured_launches_is_refused_with_one_line(events: list[Event]) -> None:
    with pytest.raises(InputError, match=r"hand-made\.json: no captured launches") as error:
        capture_reference((trace_of(*events),))
    assert "\n" not in str(error.value)


def test_a_capture_that_did_not_end_is_cut() -> None:
    trace = capture_of(captured(model(2), end=False))
    assert capture_reference((trace,)).graphs[0].cut
    whole = capture_of(captured(model(2)))
    damaged = replace(whole, findings=(Finding("truncated", "the file ends early"),))
    assert capture_reference((damaged,)).graphs[0].cut
    assert not capture_reference((whole,)).graphs[0].cut


def test_deep_nesting_is_bounded() -> None:
    events = captured([("k", (), "")] * 3)
    events += [module(0, 10_000 - n, f"Module{'x' * 50}_{n}") for n in range(5_000)]
    assert all(len(path) <= 2_048 for _, path in found(trace_of(*events)))
