"""Attributed times: against a look at every nanosecond, and what must not change them."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze, analyze_ranks
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.attributed_time import attributed_in, attributed_ns
from decodescope.analyzer.timing.intervals import covered_inside, union
from decodescope.analyzer.trace import Intervals
from decodescope.analyzer.views.comparison_table import range_section
from tests.helpers.kineto_events import (
    PID,
    RECORDED,
    Event,
    call,
    document,
    event,
    op,
    prelaunched,
    read,
    span,
    trace_of,
)
from tests.helpers.read_once import analysed_once

KINDS = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_graph")
NAMES = ("a", "b", "c")
RENAMED = {"a": "z", "b": "a", "c": "m"}
ON_CPU = {
    "device": "cpu",
    "device_name": "test",
    "model": "m",
    "weights": "bundled",
    "variant": "v",
    "dtype": "fp32",
    "batch": 1,
    "context": 1,
    "position": 1,
    "steps": 1,
    "bytes_per_step": 1,
    "unprofiled_step_ns": None,
    "decodescope_version": "0",
}
Row = tuple[int, int, int, int, str, str]

rows_of_ops = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(0, 25),
        st.integers(0, 1),
        st.integers(7, 8),
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
    ),
    min_size=1,
    max_size=14,
)


def events_of(rows: list[Row], later: int = 0, names: dict[str, str] | None = None) -> list[Event]:
    return [
        op(
            later + start,
            later + start + length,
            number + 1,
            device=device,
            stream=stream,
            cat=kind,
            name=(names or {}).get(name, name),
        )
        for number, (start, length, device, stream, kind, name) in enumerate(rows)
    ]


def totals(report: Report) -> dict[str, int]:
    """All attributed times of a report, by what they are of."""
    main, found = report.main_steps, {k.name: k.attributed_ns for k in report.kernels}
    found["copies"], found["graphs"] = main.copies_attributed_ns, main.graphs_attributed_ns
    found["outside of steps"] = main.outside_attributed_ns
    return found


def assert_adds_up(analysis: Analysis) -> None:
    report, ops = analysis.report, analysis.trace.ops
    for device, busy in analysis.busy.items():
        assert analysis.attributed_ns[ops.device == device].sum() == busy.busy_ns
    assert (analysis.attributed_ns >= 0).all()
    assert (analysis.attributed_ns <= ops.length_ns).all()
    assert sum(totals(report).values()) == sum(device.busy_ns for device in report.devices)


def shares_at_every_nanosecond(
    rows: list[tuple[int, int, int, int]],
) -> tuple[list[Fraction], list[int]]:
    """The share of each (start, end, stream, rank), instant by instant, and the busy instants."""
    shares, busy = [Fraction(0)] * len(rows), []
    for at in range(max((end for _, end, *_ in rows), default=0)):
        running: dict[int, int] = {}
        for place, (start, end, stream, _) in enumerate(rows):
            if start <= at < end:
                running.setdefault(stream, place)
        if running:
            lowest = min(rows[place][3] for place in running.values())
            counting = [place for place in running.values() if rows[place][3] == lowest]
            for place in counting:
                shares[place] += Fraction(1, len(counting))
            busy.append(at)
    return shares, busy


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(0, 2), st.integers(0, 2)),
        max_size=14,
    )
)
@settings(max_examples=300, deadline=None)
def test_each_instant_is_shared_by_the_streams_that_run_in_it(
    drawn: list[tuple[int, int, int, int]],
) -> None:
    rows = sorted((start, start + length, *keys) for start, length, *keys in drawn)
    start_ns, end_ns, stream, rank = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    attributed = attributed_ns(Intervals(start_ns, end_ns), stream, rank.astype(np.int8))
    shares, busy = shares_at_every_nanosecond(rows)  # type: ignore[arg-type]
    assert attributed.sum() == len(busy)
    assert all(abs(ns - share) < 1 for ns, share in zip(attributed.tolist(), shares, strict=True))


@given(rows_of_ops)
@settings(max_examples=50, deadline=None)
def test_attributed_times_add_up_to_busy_time(rows: list[Row]) -> None:
    assert_adds_up(analyze(trace_of(*events_of(rows))))


def test_copies_count_where_no_kernel_runs_and_communication_where_nothing_else_does() -> None:
    analysis = analyze(
        trace_of(
            op(0, 100, name="gemm", stream=7),
            op(50, 200, name="Memcpy HtoD", stream=8, cat="gpu_memcpy"),
            op(90, 300, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL", stream=9),
        )
    )
    assert analysis.attributed_ns.tolist() == [100, 100, 100]
    assert analysis.report.devices[0].exposed_communication_ns == 100


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 30))
@settings(deadline=None)
def test_neither_of_two_streams_hides_the_other(first: int, second: int, apart: int) -> None:
    """Whichever of two kernels ends last: both get half of the time that they share."""
    ops = [op(0, first, name="a", stream=7), op(apart, apart + second, name="b", stream=8)]
    attributed = {k.name: k.attributed_ns for k in analyze(trace_of(*ops)).report.kernels}
    both = max(min(first, apart + second) - apart, 0)
    assert abs(attributed["a"] - (first - both / 2)) < 1
    assert abs(attributed["b"] - (second - both / 2)) < 1


def test_parts_of_windows_add_up_to_the_busy_time_in_them() -> None:
    draw = np.random.default_rng()
    seed = int(draw.integers(2**32))
    draw = np.random.default_rng(seed)
    ops = [
        op(int(at), int(at + length), name="k", stream=7 + number % 3)
        for number, (at, length) in enumerate(draw.integers(1, 200, (60, 2)) * [37, 5])
    ]
    trace = trace_of(*ops)
    edges = np.unique(draw.integers(0, 8_000, 12))
    edges = edges[: len(edges) // 2 * 2]
    windows = Intervals(edges[::2], edges[1::2])
    rows = np.arange(len(trace.ops))
    busy = union(trace.ops.start_ns, trace.ops.end_ns)
    attributed = attributed_in(trace, rows, windows)
    assert attributed.sum() == covered_inside(busy, windows).sum(), f"seed {seed}"


@given(rows_of_ops, st.integers(0, 10**9), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_the_clock_the_names_and_the_order_of_a_file_change_nothing(
    rows: list[Row], later: int, random: Any
) -> None:
    report = analyze(trace_of(*events_of(rows))).report
    shifted = analyze(trace_of(*events_of(rows, later=later))).report
    assert totals(shifted) == totals(report)
    events = events_of(rows)
    random.shuffle(events)
    assert totals(analyze(trace_of(*events)).report) == totals(report)
    renamed = analyze(trace_of(*events_of(rows, names=RENAMED))).report
    expected = {RENAMED.get(name, name): ns for name, ns in totals(report).items()}
    assert totals(renamed) == expected


@given(st.lists(st.sampled_from(NAMES), min_size=2, max_size=6), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_equal_ops_share_no_time_whatever_their_order(names: list[str], random: Any) -> None:
    """Ops that only their names distinguish: the order of the file still does not matter."""
    events = [op(10, 20, name=name) for name in names]
    expected = totals(analyze(trace_of(*events)).report)
    assert sum(expected.values()) == 10
    random.shuffle(events)
    assert totals(analyze(trace_of(*events)).report) == expected


def test_prelaunched_kernels_are_ranked_by_what_they_add_to_the_step() -> None:
    report = analyze(trace_of(*prelaunched())).report
    rows = {k.name: (k.total_ns, k.attributed_ns) for k in report.kernels}
    assert rows == {"gemv": (590, 550), "attention": (330, 50), "norm": (290, 20)}
    assert [k.name for k in report.kernels] == ["gemv", "attention", "norm"]
    assert [k.attributed_share for k in report.kernels] == [550 / 620, 50 / 620, 20 / 620]
    assert (report.kernels_ranked_by, report.overlapping) == ("attributed_ns", True)
    assert report.devices[0].busy_ns == 620


def test_a_long_wait_does_not_rank_a_kernel_first() -> None:
    report = analyze(trace_of(op(0, 100, name="works"), op(1, 110, name="waits"))).report
    assert [k.name for k in report.kernels] == ["works", "waits"]
    assert [k.total_ns for k in report.kernels] == [100, 109]


@pytest.mark.parametrize(("overlap", "ranked_by"), [(20, "total_ns"), (21, "attributed_ns")])
def test_over_two_percent_of_busy_time_ranks_by_attributed(overlap: int, ranked_by: str) -> None:
    start = 800 - overlap
    report = analyze(trace_of(op(0, 800, name="a"), op(start, 1_000, name="b"))).report
    assert report.devices[0].busy_ns == 1_000
    assert report.kernels_ranked_by == ranked_by


def test_without_overlap_attributed_times_are_durations() -> None:
    report = analyze(trace_of(op(0, 10, name="a"), op(10, 25, name="b"), op(30, 36))).report
    for kernel in report.kernels:
        assert (kernel.attributed_ns, kernel.attributed_share) == (kernel.total_ns, kernel.share)
    assert report.kernels_ranked_by == "total_ns"


def test_devices_do_not_hide_each_other() -> None:
    report = analyze(trace_of(op(0, 100, name="a"), op(0, 100, name="b", device=1))).report
    assert [(k.name, k.attributed_ns) for k in report.kernels] == [("a", 100), ("b", 100)]
    assert report.kernels_ranked_by == "total_ns"


def test_merged_ranks_are_devices_of_their_own(tmp_path: Path) -> None:
    base = 1_790_857_026_000_000_000
    paths = []
    for rank in range(3):
        events = [op(at + 40 * rank, at + 100, 5 + at, name=f"k{at}") for at in (0, 80, 160)]
        data = document(
            events, baseTimeNanoseconds=base, distributedInfo={"rank": rank, "world_size": 3}
        )
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_bytes(data)
    ranks = analyze_ranks(paths)
    assert ranks.merged is not None
    assert len(ranks.merged.report.devices) == 3
    assert_adds_up(ranks.merged)
    alone = [sum(totals(analysis.report).values()) for _, analysis in ranks.alone()]
    assert sum(totals(ranks.merged.report).values()) == sum(alone)


def test_operators_of_a_cpu_capture() -> None:
    analysis = analyze(read(RECORDED))
    assert analysis.report.on_cpu
    assert_adds_up(analysis)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 25)), min_size=1, max_size=8))
@settings(deadline=None)
def test_operators_of_several_threads_add_up(rows: list[tuple[int, int]]) -> None:
    events = [
        event("cpu_op", f"aten::mm{thread}", start, start + length, PID, thread)
        for thread, (start, length) in enumerate(rows)
    ]
    analysis = analyze(trace_of(*events, decodescope=ON_CPU))
    assert len(analysis.trace.ops) == len(rows)
    assert_adds_up(analysis)


@pytest.mark.parametrize("name", ["a100_eager.json.gz", "v100_cuda_graph.json.gz"])
def test_real_traces_with_several_streams(foreign_traces: Path, name: str) -> None:
    analysis = analysed_once(foreign_traces / name)
    assert_adds_up(analysis)
    assert analysis.report.overlapping
    attributed = [kernel.attributed_ns for kernel in analysis.report.kernels]
    assert attributed == sorted(attributed, reverse=True)
    assert attributed[0] < analysis.report.kernels[0].total_ns


def prelaunched_layers() -> list[Event]:
    """One step launched kernel by kernel; each starts when the one before it has run 20 ns."""
    events: list[Event] = [span(0, 100, "decode_step")]
    for layer in range(2):
        at = 10 + 40 * layer
        events.append(span(at, at + 40, f"layer.{layer}"))
        for place, part in enumerate(("attention", "mlp")):
            begin, number = at + 20 * place, 2 * layer + place
            events += [
                span(begin, begin + 20, part),
                call(begin + 1, begin + 5, number + 1),
                op(200 + 100 * number - 80 * bool(number), 300 + 100 * number, number + 1),
            ]
    return events


def test_attributed_times_of_ranges_add_up_where_busy_times_do_not() -> None:
    report = analyze(trace_of(*prelaunched_layers())).report
    rows = {row.path: (row.gpu_ns, row.attributed_ns) for row in report.ranges}
    assert rows["decode_step"] == (400, 400)
    assert [rows[f"decode_step/layer.{n}"] for n in (0, 1)] == [(200, 200), (280, 200)]
    parts = [row for path, row in rows.items() if path.count("/") == 2]
    assert sum(gpu_ns for gpu_ns, _ in parts) == 640
    assert sum(attributed_ns for _, attributed_ns in parts) == 400


def enumerate_kernels(events: list[Event]) -> Iterator[tuple[int, Event]]:
    """Each event with the number of kernels before it."""
    kernels = 0
    for one in events:
        yield kernels, one
        kernels += one["cat"] == "kernel"


def test_a_diff_compares_ranges_by_attributed_time_if_a_side_overlaps() -> None:
    apart = [
        one if one["cat"] != "kernel" else op(200 + 100 * place, 300 + 100 * place, place + 1)
        for place, one in enumerate_kernels(prelaunched_layers())
    ]
    alone, overlapped = (
        analyze(trace_of(*events)).report for events in (apart, prelaunched_layers())
    )
    assert (alone.overlapping, overlapped.overlapping) == (False, True)
    pair = diff_reports(alone, overlapped).pair
    assert pair.overlapping
    rows = {row.path: row for row in pair.ranges}
    layers = rows["decode_step/layer.*"]
    assert (layers.gpu_ns.base, layers.gpu_ns.other) == (400, 480)
    assert (layers.attributed_ns.base, layers.attributed_ns.other) == (400, 400)
    section = range_section(pair)
    assert section.table.columns[1].heading.endswith("attr. µs")
    change = next(column for column in section.table.columns if column.key == "change")
    assert {change.cell(row) for row in section.table.rows} == {"same"}
    assert "attributed times, because ops overlap" in section.note
    same = diff_reports(alone, alone).pair
    assert not same.overlapping
    assert "attr." not in range_section(same).table.columns[1].heading


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=6), st.integers(0, 2**60))
def test_shares_of_long_times_add_up(lengths: list[int], longer_ns: int) -> None:
    """A float does not hold each whole ns of 2**60."""
    end_ns = np.array(lengths) + longer_ns
    times = Intervals(np.arange(len(lengths)), end_ns + len(lengths))
    streams, ranks = np.arange(len(lengths)), np.zeros(len(lengths), dtype=np.int8)
    assert attributed_ns(times, streams, ranks).sum() == times.end_ns.max()
