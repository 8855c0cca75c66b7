"""A Chrome trace shows what was analysed, nests, and reads back with the same figures."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.chrome.events import timestamp_text
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.analyzer.schema.graph_reference import GraphReference, ReferenceOp
from decodescope.analyzer.timing.gaps import HOST_WAIT
from tests.helpers.kineto_events import DATA, PID, Event, call, event, op, span, trace_of
from tests.helpers.rich_report import CAPTURE, ELEMENTWISE

PATHS = ("", "/layer.0", "/layer.0/norm", "/layer.0/mlp", "/layer.1")
BASE = 1_661_938_466_265_032_123


def rich_analysis() -> Analysis:
    return analyze(
        trace_of(
            span(BASE, BASE + 900, "decode_step_0"),
            span(BASE + 10, BASE + 400, "layer.0"),
            event("cpu_op", "aten::mul", BASE + 12, BASE + 90, PID, 1, **{"External id": 3}),
            call(BASE + 20, BASE + 60, 1),
            op(BASE + 100, BASE + 301, 1, name=ELEMENTWISE),
            call(BASE + 61, BASE + 70, 2),
            op(BASE + 250, BASE + 350, 2, name='we"ird\\ \x1b[31m'),
            call(BASE + 410, BASE + 480, 3, name="cudaGraphLaunch"),
            op(BASE + 500, BASE + 600, 3, **{"graph id": 1, "graph node id": 4294967298}),
            op(BASE + 610, BASE + 700, 3, **{"graph id": 1, "graph node id": 4294967299}),
            call(BASE + 500, BASE + 505, 4, name="cudaMemcpyAsync"),
            op(BASE + 800, BASE + 801, 4, name="Memcpy", cat="gpu_memcpy", stream=9),
            op(BASE + 820, BASE + 830, name="lost", device=1),
            deviceProperties=[{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H200"}],
            baseTimeNanoseconds=77,
            decodescope=CAPTURE,
        )
    )


def figures(analysis: Analysis) -> bytes:
    report = analysis.report
    health = msgspec.structs.replace(report.health, findings=())
    return msgspec.json.encode(msgspec.structs.replace(report, source=None, health=health))


@pytest.mark.parametrize("name", ["out.json", "out.json.gz"])
def test_an_exported_trace_reads_back_the_same(tmp_path: Path, name: str) -> None:
    analysis = rich_analysis()
    export_chrome(analysis, tmp_path / name)
    again = load(tmp_path / name)
    assert figures(analyze(again)) == figures(analysis)
    assert again.base_ns == 77 + BASE
    assert (again.ops.start_ns + BASE).tolist() == analysis.trace.ops.start_ns.tolist()
    assert again.ops.graph_node_id.tolist() == analysis.trace.ops.graph_node_id.tolist()
    assert again.capture == analysis.trace.capture
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_cpu_capture_reads_back_the_same(tmp_path: Path) -> None:
    analysis = analyze(load(DATA / "cpu_two_blocks.json.gz"))
    export_chrome(analysis, tmp_path / "out.json")
    assert figures(analyze(load(tmp_path / "out.json"))) == figures(analysis)


def exported_events(tmp_path: Path, analysis: Analysis | None = None) -> list[Event]:
    export_chrome(analysis or rich_analysis(), tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    events: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return events


def test_times_are_microseconds_with_three_decimals(tmp_path: Path) -> None:
    for item in exported_events(tmp_path):
        for key in ("ts", "dur"):
            if key in item:
                assert isinstance(item[key], Decimal)
                assert item[key].as_tuple().exponent == -3
                assert 0 <= item[key] < 1


def assert_nested(events: list[Event]) -> None:
    """Slices of one track nest, and an outer one stands before an inner one of the same start."""
    tracks: dict[tuple[int, int], list[tuple[Decimal, Decimal]]] = {}
    for item in events:
        if item["ph"] == "X":
            end = item["ts"] + item["dur"]
            tracks.setdefault((item["pid"], item["tid"]), []).append((item["ts"], end))
    for slices in tracks.values():
        assert slices == sorted(slices, key=lambda one: (one[0], -one[1]))
        for start, end in slices:
            assert not any(start < s < end < e for s, e in slices)


def test_slices_of_one_track_nest(tmp_path: Path) -> None:
    assert_nested(exported_events(tmp_path))


def test_arrows_go_from_calls_to_ops(tmp_path: Path) -> None:
    events = exported_events(tmp_path)
    slices = [item for item in events if item["ph"] == "X"]
    tails = {item["id"]: item for item in events if item["ph"] == "s"}
    heads = {item["id"]: item for item in events if item["ph"] == "f"}
    assert len(tails) == len(heads) == 5
    for number, tail in tails.items():
        (source,) = (s for s in slices if at(s, tail) and s["cat"] == "cuda_runtime")
        (target,) = (s for s in slices if at(s, heads[number]) and s["cat"] != "gap")
        assert source["args"]["correlation"] == target["args"]["correlation"]
        assert heads[number]["bp"] == "e"


def at(piece: Event, arrow: Event) -> bool:
    return all(piece[key] == arrow[key] for key in ("pid", "tid", "ts"))


def test_gaps_and_counters_have_tracks_of_their_own(tmp_path: Path) -> None:
    events = exported_events(tmp_path)
    analysis = rich_analysis()
    gaps = [item for item in events if item.get("cat") == "gap"]
    pieces = np.count_nonzero(analysis.parts.kind != HOST_WAIT) + len(analysis.host_waits)
    assert len(gaps) == pieces > len(analysis.gaps)
    assert "host_wait: python" in {item["name"] for item in gaps}
    assert sum(item["args"]["length_ns"] for item in gaps) == sum(
        device.idle_ns for device in analysis.report.devices
    )
    names = {item["args"]["name"] for item in events if item["name"] == "thread_name"}
    assert {"idle gaps", "stream 7", "stream 7 overlapping on it", "stream 9"} <= names
    depths = [item["args"]["queue depth"] for item in events if item["name"] == "queue depth"]
    assert max(depths) == 2
    assert depths[-1] == 0
    assert {item["args"]["busy"] for item in events if item["name"] == "busy"} == {0, 1}


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        export_chrome(rich_analysis(), tmp_path / "missing" / "out.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "0.000"), (1, "0.001"), (-1, "-0.001"), (-1500, "-1.500"), (10**18, f"{10**15}.000")],
)
def test_microseconds_text(ns: int, text: str) -> None:
    assert timestamp_text(ns) == text


def replayed(names: str, starts: list[tuple[int, int, int]], reference: GraphReference) -> Analysis:
    """Two steps, each with a graph replay of ops (start, length, stream)."""
    events = []
    for number, at in enumerate((0, 1000), 1):
        events += [
            span(at, at + 900, "decode_step"),
            span(at + 1, at + 800, "model"),
            call(at + 2, at + 3, number, name="cudaGraphLaunch"),
        ]
        for name, (start, length, stream) in zip(names, starts, strict=False):
            start += at + 10
            events.append(op(start, start + length, number, name=name, stream=stream))
    return analyze(replace(trace_of(*events), reference=reference))


def ranges_of(events: list[Event]) -> list[tuple[str, int, int, str]]:
    return [
        (
            item["args"]["path"],
            int(item["ts"] * 1000),
            int(item["dur"] * 1000),
            item["args"]["confidence"],
        )
        for item in events
        if item.get("cat") == "model_range"
    ]


def model(*rows: tuple[str, str]) -> GraphReference:
    return GraphReference(
        tuple(ReferenceOp(7, name, f"decode_step/model{path}") for name, path in rows)
    )


def test_the_models_ranges_are_above_a_replays_ops(tmp_path: Path) -> None:
    rows = model(
        ("a", "/layer.0/norm"),
        ("b", "/layer.0/mlp"),
        ("c", "/layer.0/mlp"),
        ("d", "/layer.1"),
        ("e", ""),
    )
    starts = [(0, 10, 7), (10, 10, 7), (25, 5, 7), (28, 10, 7), (50, 5, 7)]
    events = exported_events(tmp_path, replayed("abcde", starts, rows))
    first = [
        ("decode_step", 10, 55, "exact"),
        ("decode_step/model", 10, 55, "exact"),
        ("decode_step/model/layer.0", 10, 28, "exact"),
        ("decode_step/model/layer.0/norm", 10, 10, "exact"),
        ("decode_step/model/layer.0/mlp", 20, 18, "exact"),
        ("decode_step/model/layer.1", 38, 10, "exact"),
    ]
    assert ranges_of(events) == first + [(p, s + 1000, d, c) for p, s, d, c in first]
    labels = [item["args"]["name"] for item in events if item["name"] == "thread_name"]
    assert labels == [
        "idle gaps",
        "stream 7 model ranges (reconstructed)",
        "stream 7",
        "stream 7 overlapping on it",
    ]
    kernels = [item for item in events if item.get("cat") == "kernel"]
    assert [item["args"]["range"] for item in kernels] == [row.path for row in rows.ops] * 2


def test_ranges_of_a_partially_known_replay_are_marked(tmp_path: Path) -> None:
    rows = model(("a", "/layer.0"), ("b", "/layer.1"))
    starts = [(0, 10, 7), (10, 10, 7), (20, 10, 7)]
    assert ranges_of(exported_events(tmp_path, replayed("axb", starts, rows)))[:4] == [
        ("decode_step", 10, 30, "exact"),
        ("decode_step/model", 10, 30, "exact"),
        ("decode_step/model/layer.0", 10, 10, "partial"),
        ("decode_step/model/layer.1", 30, 10, "partial"),
    ]
    unknown = replayed("axb", starts, model(("z", "/layer.0")))
    assert ranges_of(exported_events(tmp_path, unknown)) == []


@given(
    st.text("abc", min_size=1, max_size=9),
    st.lists(
        # The reader leaves out kernels of no length.
        st.tuples(st.integers(0, 40), st.integers(1, 15), st.sampled_from((7, 9))),
        min_size=9,
        max_size=9,
    ),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(PATHS)), max_size=9),
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_slices_nest_and_no_op_is_lost_whatever_overlaps(
    tmp_path: Path, names: str, starts: list[tuple[int, int, int]], rows: list[tuple[str, str]]
) -> None:
    analysis = replayed(names, starts, model(*rows))
    events = exported_events(tmp_path, analysis)
    assert_nested(events)
    assert sum(item.get("cat") == "kernel" for item in events) == len(analysis.trace.ops)
    idle_ns = sum(item["args"]["length_ns"] for item in events if item.get("cat") == "gap")
    assert idle_ns == analysis.gaps.length_ns.sum()
    assert all(item["dur"] >= 0 for item in events if item["ph"] == "X")
    assert figures(analyze(load(tmp_path / "out.json"))) == figures(analysis)


def test_an_attributed_replay_reads_back_attributed(tmp_path: Path) -> None:
    reference = reference_from(analyze(load(DATA / "h200_compiled_ungraphed.json.gz")))
    trace = replace(load(DATA / "h200_compiled_replays.json.gz"), reference=reference)
    analysis = analyze(trace)
    assert analysis.report.attribution is not None
    assert analysis.report.attribution.none == 0
    export_chrome(analysis, tmp_path / "out.json.gz")
    again = load(tmp_path / "out.json.gz")
    assert again.reference == reference
    assert figures(analyze(again)) == figures(analysis)
