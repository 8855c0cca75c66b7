"""Proton's trees give totals and say that they have no times; its Chrome traces give a timeline."""

import json
import random
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.proton import hatchet
from tests.helpers.foreign.proton_files import Node, event, kernel, scope, trace, tree
from tests.helpers.kineto_events import codes
from tests.helpers.reports import analyzed

GRAPH = scope(
    "decode",
    kernel("gemm", 10, 1_000),
    scope("<captured_at>", scope("layer", kernel("gemm", 30, 5_000), kernel("norm", 3, 7))),
    bytes=5.0,
)
METADATA = scope("__proton_launch_metadata", kernel("not mine", 9, 9))


@pytest.fixture(params=["json", "msgpack"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "proton.hatchet"
    nodes = tree(GRAPH, kernel("gemm", 1, 50, "1"), kernel("idle", 0, 0), METADATA)
    if request.param == "json":
        # Proton writes an empty line first.
        path.write_text("\n" + json.dumps(nodes, indent=4))
    else:
        # MessagePack keeps the order of Proton's writer: the frame is first.
        order = ("frame", "metrics", "children")
        ordered = [{key: nodes[0][key] for key in order}, nodes[1]]
        path.write_bytes(msgspec.msgpack.encode(ordered))
    return path


def test_a_tree_gives_the_totals_of_its_kernels(written: Path) -> None:
    read = load(written)
    assert (read.source.format, read.source.events) == ("proton-hatchet", 44)
    report = analyze(read).report
    rows = [(row.name, row.count, row.total_ns, row.mean_ns) for row in report.kernels]
    assert rows == [("gemm", 41, 6_050, 147), ("norm", 3, 7, 2)]
    assert sum(row.share for row in report.kernels) == pytest.approx(1)


def test_a_tree_says_what_it_cannot_know(written: Path) -> None:
    report = analyze(load(written)).report
    assert report.health.status == "degraded"
    (finding,) = report.health.findings
    assert finding.code == "totals_only"
    assert "44 runs of 2 kernels" in finding.message
    assert (
        report.answer.because[0] == "a tree of totals has no times, so no steps, gaps or launches"
    )
    assert (report.steps, report.devices, report.launches.calls) == ((), (), 0)
    assert (report.answer.step_ns, report.largest_gaps, report.main_steps.steps) == (None, (), 0)


@given(st.randoms(use_true_random=False))
def test_the_totals_are_those_of_a_slow_count(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    expected: dict[str, list[int]] = {"k0": [1, 1]}

    def drawn(depth: int) -> Node:
        if depth and rng.random() < 0.6:
            return scope(f"s{rng.randrange(3)}", *(drawn(depth - 1) for _ in range(3)))
        name, count, time_ns = f"k{rng.randrange(4)}", rng.randrange(1, 99), rng.randrange(10**9)
        total = expected.setdefault(name, [0, 0])
        total[0] += count
        total[1] += time_ns
        return kernel(name, count, time_ns)

    path = tmp_path_factory.getbasetemp() / "drawn.hatchet"
    path.write_text(json.dumps(tree(kernel("k0", 1, 1), *(drawn(4) for _ in range(3)))))
    read = load(path)
    rows = read.totals
    found = zip(rows.name.tolist(), rows.count.tolist(), rows.total_ns.tolist(), strict=True)
    assert {read.names[name]: [count, ns] for name, count, ns in found} == expected


def no_time(name: str, **metrics: object) -> Node:
    return {**scope(name), "metrics": {"device_id": "0", **metrics}}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (json.dumps(tree()), "no kernel that has time"),
        (json.dumps(tree(no_time("k", cycles=5))), "with cycles, and no kernel"),
        (json.dumps(tree(no_time("k", num_samples=5))), "with samples, and no kernel"),
        (json.dumps(tree(kernel("k", 2**61, 2**61), kernel("k", 5, 5))), "that no run has"),
        (json.dumps(tree(GRAPH))[:-20], "no tree as Proton writes it"),
        ('[{"children": 5}]', "no tree as Proton writes it"),
        ('[{"children": ' * 100_000, "too deep|no tree"),
    ],
)
def test_what_is_no_tree_of_times_is_one_line(data: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "proton.hatchet"
    path.write_text(data)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_unusable_totals_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "proton.hatchet"
    odd = [kernel("k", *pair) for pair in ((-1, 5), (True, 5), (2, "soon"), (1.5, 3), (2**70, 1))]
    path.write_text(json.dumps(tree(kernel("good", 1, 5), *odd)))
    read = load(path)
    assert read.totals.count.tolist() == [1]
    assert codes(read) == {"dropped_events"}


def test_a_tree_is_bounded(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hatchet, "_MAX_BYTES", 300)
    with pytest.raises(TraceError, match="record a shorter window"):
        load(written)


def test_older_traces_have_a_document_for_each_stream(tmp_path: Path) -> None:
    path = tmp_path / "proton.chrome_trace"
    kernels = [
        {key: value for key, value in event("gemm", at, at + 40, stream).items() if key != "pid"}
        for at, stream in ((100, 7), (300, 7), (150, 9))
    ]
    path.write_bytes(trace(kernels[:2], kernels[2:]))
    read = load(path)
    assert read.ops.start_ns.tolist() == [100, 150, 300]
    assert (read.ops.stream.tolist(), read.ops.device.tolist()) == ([7, 9, 7], [0] * 3)
    assert codes(read) == set()


def test_newer_traces_have_lanes_and_scopes(tmp_path: Path) -> None:
    path = tmp_path / "proton.chrome_trace"
    path.write_bytes(
        trace(
            [
                event("decode", 50, 900, 12, "scope"),
                event("bytes: <bytes, 5>", 60, 70, 12, "metric"),
                event("layer", 100, 340, 100_007, "scope"),
                event("gemm", 100, 140, 200_007),
                event("gemm", 300, 340, 1_200_007),
            ]
        )
    )
    read = load(path)
    assert (read.ops.stream.tolist(), read.ops.device.tolist()) == ([7, 7], [0, 1])
    ranges = [read.names[name] for name in read.ranges.name]
    assert (ranges, read.ranges.tid.tolist()) == (["decode", "bytes: <bytes, 5>"], [12, 12])
    assert [row.count for row in analyzed(read).report.kernels] == [2]
    assert codes(read) == set()


def test_a_trace_of_triton_3_9_has_a_wall_clock_and_scopes(tmp_path: Path) -> None:
    """Two scopes, without a GPU, as `libproton` wrote them."""
    path = tmp_path / "out.chrome_trace"
    path.write_text(
        '{"baseTimeNanoseconds":1795800630377954727,"displayTimeUnit":"us","traceEvents":[{"args":'
        '{"call_stack":["ROOT","decode"],"scope_id":1},"cat":"scope","dur":6.89,"name":"decode",'
        '"ph":"X","pid":0,"tid":0,"ts":0.0},{"args":{"call_stack":["ROOT","decode","layer"],'
        '"scope_id":2},"cat":"scope","dur":1.572,"name":"layer","ph":"X","pid":0,"tid":0,'
        '"ts":3.896}]}\n'
    )
    read = load(path)
    assert read.base_ns == 1_795_800_630_377_954_727
    assert [read.names[name] for name in read.ranges.name] == ["decode", "layer"]
    assert read.ranges.start_ns.tolist() == [0, 3_896]
    assert read.ranges.end_ns.tolist() == [6_890, 5_468]


def test_other_documents_behind_a_trace_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    one = json.dumps({"traceEvents": [event("gemm", 100, 140, 7)]})
    path.write_text(f"{one}\n{one}\n")
    assert codes(load(path)) == {"trailing_data"}
