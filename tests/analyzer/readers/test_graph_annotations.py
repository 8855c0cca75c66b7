"""torch's annotations of graph nodes, and the kernels that launch calls name."""

from pathlib import Path

import pytest

from decodescope.analyzer import Analysis, Given, analyze, load
from decodescope.analyzer.attribution.ranges import replay_sources
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.schema.report import Attribution
from tests.helpers.foreign.captures import attributed, capture_of, captured, kernels, model, replays
from tests.helpers.kineto_events import Event, call, op, span, trace_of

GRAPH = 7 << 32


def replay(*args: dict[str, object], at: int = 0, packed: bool = True) -> list[Event]:
    """A step with one graph launch, whose nodes have these arguments."""
    events = [span(at, at + 90, f"step {at}"), call(at + 1, at + 5, at + 1, name="cudaGraphLaunch")]
    for k, more in enumerate(args):
        start = at + 1_000 + 10 * k
        node = GRAPH + k + 1 if packed else k + 1
        made = op(start, start + 5, at + 1, name=f"kernel_{k}")
        made["args"] |= {"graph id": 7, "graph node id": node, **more}
        events.append(made)
    return events


def paths(analysis: Analysis) -> list[str]:
    ranges = analysis.ranges
    return [ranges.paths[node].removeprefix("step").strip("/") for node in ranges.op_node.tolist()]


@pytest.mark.parametrize("packed", [True, False])
def test_annotations_are_the_paths_of_the_nodes(packed: bool) -> None:
    nodes: tuple[dict[str, object], ...] = (
        {"module_fqn": "layers.0.attention.wq"},
        {"str": "phase_A"},
        {"annotation": '[{"str": "outer"}, {"module_fqn": "layers.11.mlp"}]'},
        {"annotation": "plain text"},
        {"name": "all_gather", "stream": "61"},
        {},
    )
    analysis = analyze(trace_of(*replay(*nodes, packed=packed), *replay(*nodes, at=5_000)))
    assert (
        paths(analysis)
        == [
            "layers.0/attention/wq",
            "phase_A",
            "layers.11/mlp",
            "plain text",
            "all_gather",
            "(graph replay)",
        ]
        * 2
    )
    assert attributed(analysis) == Attribution(exact=10, partial=0, none=2)
    assert replay_sources(analysis.trace, analysis.ranges.reference_op) == {"annotations": 10}


def test_a_later_replay_without_annotations_follows_its_nodes() -> None:
    first = replay({"str": "a"}, {"str": "b"})
    analysis = analyze(trace_of(*first, *replay({}, {}, at=5_000)))
    assert paths(analysis) == ["a", "b"] * 2


def test_the_same_numbers_in_another_graph_have_no_annotation() -> None:
    other = replay({}, at=5_000)
    other[-1]["args"] |= {"graph id": 8, "graph node id": (8 << 32) + 1}
    assert paths(analyze(trace_of(*replay({"str": "a"}), *other))) == ["a", "(graph replay)"]


def test_kernels_outside_of_graphs_are_not_annotated() -> None:
    events = [call(1, 5, 1), op(10, 20, 1, annotation="x")]
    assert analyze(trace_of(*events)).trace.reference is None


@pytest.mark.parametrize(
    "value", [None, 7, True, "", "{", "[[[", [], {}, {"str": 3}, ["a", {"b": 1}], "[" * 5_000]
)
def test_odd_annotations_break_nothing(value: object) -> None:
    found = attributed(analyze(trace_of(*replay({"annotation": value}, {"str": value}))))
    assert found.exact + found.none == 2


def test_a_capture_wins_and_annotations_fill_what_it_leaves() -> None:
    nodes = model(2)
    events = replays(kernels(nodes), node_ids=True)
    events[3]["args"]["str"] = "annotated"
    more = replay({"str": "other graph"}, at=50_000)
    analysis = analyze(trace_of(*events, *more), Given((capture_of(captured(nodes)),)))
    assert replay_sources(analysis.trace, analysis.ranges.reference_op) == {
        "capture": len(nodes),
        "annotations": 1,
    }


def test_exported_annotations_are_read_back(tmp_path: Path) -> None:
    analysis = analyze(trace_of(*replay({"str": "a/b"}, {})))
    export_chrome(analysis, tmp_path / "one.json")
    again = analyze(load(tmp_path / "one.json"))
    assert paths(again) == paths(analysis) == ["a/b", "(graph replay)"]
    assert attributed(again) == attributed(analysis)


def test_calls_name_their_kernels() -> None:
    events = [call(10 * k, 10 * k + 5, k + 1) for k in range(6)]
    for number, kernel in ((1, "a"), (2, "b\x1b[31m"), (3, 7), (4, "")):
        events[number]["args"]["kernel"] = kernel
    events.append(call(70, 75, 2))
    trace = trace_of(*events)
    kernel_of = trace.call_kernels.of(trace.calls).tolist()
    assert [trace.names[one] if one >= 0 else None for one in kernel_of] == [
        None,
        "a",
        "b\x1b[31m",
        None,
        None,
        None,
        "a",
    ]
    again = call(80, 85, 2)
    again["args"]["kernel"] = "c"
    # An id of two calls that name kernels joins neither.
    shared = trace_of(*events, again)
    assert shared.call_kernels.of(shared.calls)[1] == -1
    plain = trace_of(call(1, 2, 1))
    assert plain.call_kernels.of(plain.calls).tolist() == [-1]
