"""Parts of gaps against a slow reference that follows the definitions word by word."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.gaps import HOST_WAIT, HOST_WAIT_LABELS
from tests.helpers.drawn_windows import US, Call, Op, analysed, windows
from tests.helpers.kineto_events import Event, call, op, trace_of
from tests.helpers.slow_gaps import Piece, slow_gaps


def pieces(analysis: Analysis, gap: int) -> tuple[Piece, ...]:
    """The parts of one gap in the order of time, host_wait by label."""
    parts = analysis.parts.take(analysis.parts.gap == gap)
    waits = analysis.host_waits.take(analysis.host_waits.gap == gap)
    edges = [*parts.start_ns.tolist(), int(analysis.gaps.end_ns[gap])]
    assert edges[0] == analysis.gaps.start_ns[gap]
    assert edges[1:] == parts.end_ns.tolist()
    waited = [
        (f"host_wait: {HOST_WAIT_LABELS[label]}", ns)
        for label, ns in zip(waits.kind.tolist(), waits.length_ns.tolist(), strict=True)
    ]
    if waited:
        late = parts.take(parts.kind == HOST_WAIT)
        assert waits.start_ns.tolist() == [late.start_ns[0], *waits.end_ns[:-1].tolist()]
        assert waits.end_ns[-1] == late.end_ns[0]
    rest = [
        (GAP_CLASSES[kind], ns)
        for kind, ns in zip(parts.kind.tolist(), parts.length_ns.tolist(), strict=True)
        if kind != HOST_WAIT
    ]
    assert len(waited) + len(rest) >= len(parts)
    return (*waited, *rest)


@given(windows())
@settings(max_examples=75, deadline=None)
def test_parts_follow_the_definitions(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    analysis = analysed(ops, calls)
    gaps = analysis.gaps
    for report in analysis.report.devices:
        assert isinstance(report.device, int)
        here = (gaps.device == report.device).nonzero()[0].tolist()
        found = [(int(gaps.start_ns[i]), int(gaps.end_ns[i]), pieces(analysis, i)) for i in here]
        expected = slow_gaps(ops, calls, {report.device})
        assert found == [(g.prev.end, g.next.start, g.pieces) for g in expected]


@given(windows())
@settings(max_examples=75, deadline=None)
def test_parts_add_up_to_idle(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    report = analysed(ops, calls).report
    for device in report.devices:
        mine = [o for o in ops if o.device == device.device]
        start, end = min(o.start for o in mine), max(o.end for o in mine)
        covered = sum(any(o.start <= at < o.end for o in mine) for at in range(start, end, US))
        assert device.window_ns == end - start
        assert device.busy_ns == covered * US <= device.window_ns
        assert device.idle_ns == device.window_ns - device.busy_ns == device.all_gaps.total_ns
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
        assert all(total.count <= device.all_gaps.count for total in device.gaps.values())
        waits = device.gaps["host_wait"]
        assert sum(total.total_ns for total in device.host_wait.values()) == waits.total_ns
        assert sum(total.count for total in device.host_wait.values()) >= waits.count
    for gap in report.largest_gaps:
        assert sum(gap.parts.values()) == gap.length_ns
        assert sum(gap.host_wait.values()) == gap.parts.get("host_wait", 0)
        assert gap.parts[gap.gap_class] == max(gap.parts.values())


@given(windows(), st.integers(-10_000_000, 1 << 53), st.randoms(use_true_random=False))
@settings(max_examples=35, deadline=None)
def test_the_clock_and_the_order_of_events_change_nothing(
    window: tuple[list[Op], list[Call]], shift_ns: int, random: Random
) -> None:
    ops, calls = window
    shifted = [replace(o, start=o.start + shift_ns, end=o.end + shift_ns) for o in ops]
    later = [replace(c, start=c.start + shift_ns, end=c.end + shift_ns) for c in calls]
    random.shuffle(shifted)
    random.shuffle(later)
    before, after = analysed(ops, calls).report, analysed(shifted, later).report
    assert after.devices == before.devices
    assert after.launches == before.launches
    assert after.kernels == before.kernels
    assert after.answer == before.answer


CAPTURE = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "model": "m",
    "weights": "random",
    "variant": "eager",
    "dtype": "bf16",
    "batch": 1,
    "context": 4,
    "position": 4,
    "steps": 2,
    "bytes_per_step": 48_000,
    "unprofiled_step_ns": 90,
    "decodescope_version": "0",
}


def kinds(*events: Event) -> list[str]:
    return [GAP_CLASSES[kind] for kind in analyze(trace_of(*events)).parts.kind]


def cut(*events: Event) -> list[Piece]:
    analysis = analyze(trace_of(*events))
    return [piece for gap in range(len(analysis.gaps)) for piece in pieces(analysis, gap)]


def test_a_gap_is_cut_where_its_launch_call_begins_and_ends() -> None:
    prev, following = op(0, 10, 1), op(31, 40, 2)
    late = [("host_wait: python", 5), ("launch_call", 4), ("launch_latency", 12)]
    assert cut(prev, call(15, 19, 2), following) == late
    assert cut(prev, call(10, 12, 2), following) == [("launch_call", 2), ("launch_latency", 19)]
    assert cut(prev, call(4, 12, 2), following) == [("launch_call", 2), ("launch_latency", 19)]
    assert cut(prev, call(4, 10, 2), following) == [("launch_latency", 21)]
    assert cut(prev, call(4, 45, 2), following) == [("launch_call", 21)]
    assert cut(prev, call(20, 31, 2), following) == [("host_wait: python", 10), ("launch_call", 11)]
    assert cut(prev, call(35, 38, 2), following) == [("host_wait: python", 21)]


def test_a_late_launch_before_a_long_wait_for_an_event_is_mostly_a_dependency() -> None:
    wait = call(10_500, 11_000, name="cudaStreamWaitEvent")
    prev, following = op(0, 10_000, 1), op(100_000_000, 100_001_000, 2)
    late = [
        ("host_wait: python", 500),
        ("host_wait: other_api", 500),
        ("host_wait: python", 14_001),
        ("launch_call", 5_000),
        ("dependency", 99_969_999),
    ]
    launch = call(25_001, 30_001, 2)
    assert cut(prev, wait, launch, following) == late
    gap = analyze(trace_of(prev, wait, launch, following)).report.largest_gaps[0]
    assert (gap.gap_class, gap.label) == ("dependency", None)
    assert gap.host_wait == {"other_api": 500, "python": 14_501}


def test_the_inside_of_a_graph_launch_is_no_python() -> None:
    launch = call(50, 616, 2, name="cudaGraphLaunch")
    found = cut(op(0, 10, 1), launch, op(616, 700, 2))
    assert found == [("host_wait: python", 40), ("launch_call", 566)]


def test_a_host_wait_is_cut_by_what_the_thread_did_at_each_moment() -> None:
    events = [
        op(0, 100, 1),
        call(90, 130, name="cudaStreamSynchronize"),
        call(150, 200, name="cudaMalloc"),
        call(160, 170, name="cuMemCreate"),
        call(170, 180, name="cudaDeviceSynchronize"),
        call(200, 210, name="cudaEventRecord"),
        call(220, 240, name="cudaStreamSynchronize", tid=2),
        call(300, 310, 2),
        op(310, 400, 2),
    ]
    assert cut(*events) == [
        ("host_wait: sync", 30),
        ("host_wait: python", 20),
        ("host_wait: allocation", 20),
        ("host_wait: sync", 10),
        ("host_wait: allocation", 20),
        ("host_wait: other_api", 10),
        ("host_wait: python", 90),
        ("launch_call", 10),
    ]


def test_a_floor_holds_for_what_is_left_after_the_launch_call() -> None:
    capture = {**CAPTURE, "kernel_floor_ns": 1200}
    late = [call(-9, -8, 1), op(0, 10, 1), call(5010, 7010, 2), op(8210, 9000, 2)]
    analysis = analyze(trace_of(*late, decodescope=capture))
    assert pieces(analysis, 0) == (
        *(("host_wait: python", 5000), ("launch_call", 2000), ("kernel_floor", 1200)),
    )


def test_times_in_whole_microseconds_give_no_floor() -> None:
    calls = [call(i, i + 1, i + 1) for i in range(4)]
    ops = [op(at * 1000, (at + 10) * 1000, n + 1) for n, at in enumerate((60, 71, 82, 93))]
    assert analyze(trace_of(*calls, *ops)).report.devices[0].kernel_floor_ns is None
    finer = [op(60_000, 70_001, 1), *ops[1:]]
    assert analyze(trace_of(*calls, *finer)).report.devices[0].kernel_floor_ns == 1000


def test_ops_of_one_graph_launch_but_not_of_two() -> None:
    first, second = call(0, 5, 1, name="cudaGraphLaunch"), call(6, 9, 2, name="hipGraphLaunch")
    ops = [op(20, 30, 1), op(32, 40, 1), op(45, 50, 2), op(55, 60, 2)]
    assert kinds(first, second, *ops) == ["graph_internal", "launch_latency", "graph_internal"]


def test_graph_ops_need_no_node_ids_and_may_have_them() -> None:
    launch = call(0, 5, 1, name="cudaGraphLaunch")
    node = {"graph id": 1, "graph node id": 1 << 32}
    assert kinds(launch, op(20, 30, 1, **node), op(32, 40, 1, **node)) == ["graph_internal"]


def test_a_gap_of_zero_length_ops_is_two_gaps() -> None:
    report = analyze(trace_of(op(0, 10), op(15, 15, cat="gpu_memset"), op(20, 30))).report
    (device,) = report.devices
    assert (device.gaps["unlinked"].count, device.gaps["unlinked"].total_ns) == (2, 10)


def test_an_event_wait_before_the_launch_is_a_dependency() -> None:
    wait = call(3, 4, name="cudaStreamWaitEvent")
    ops = [op(6, 100, 1), op(120, 130, 2)]
    assert kinds(call(0, 2, 1), wait, call(5, 6, 2), *ops) == ["dependency"]
    assert kinds(wait, call(4, 5, 1), call(6, 7, 2), *ops) == ["launch_latency"]


@pytest.mark.parametrize(
    ("api", "label"),
    [
        ("cudaStreamSynchronize", "sync"),
        ("hipDeviceSynchronize", "sync"),
        ("cudaEventSynchronize", "sync"),
        ("cudaMalloc", "allocation"),
        ("hipFree", "allocation"),
        ("cudaHostAlloc", "allocation"),
        ("cuMemCreate", "allocation"),
        ("cudaMemcpyAsync", "memcpy_api"),
        ("hipMemcpyWithStream", "memcpy_api"),
        ("cudaMemsetAsync", "memcpy_api"),
        ("cudaStreamIsCapturing", "other_api"),
        ("cuModuleLoadData", "other_api"),
    ],
)
def test_labels_of_host_wait(api: str, label: str) -> None:
    wait = call(5, 90, name=api)
    report = analyze(trace_of(op(0, 10, 1), wait, call(100, 105, 2), op(110, 120, 2))).report
    (device,) = report.devices
    assert device.host_wait[label].total_ns == 80
    assert device.host_wait["python"].total_ns == 10
    assert device.gaps["host_wait"].max_ns == 90
    assert device.gaps["launch_call"].total_ns == 5
    assert device.gaps["launch_latency"].total_ns == 5


def test_another_threads_wait_does_not_count() -> None:
    wait = call(5, 90, name="cudaStreamSynchronize", tid=2)
    report = analyze(trace_of(op(0, 10, 1), wait, call(100, 105, 2), op(110, 120, 2))).report
    assert report.devices[0].host_wait["python"].count == 1


def test_the_floor_is_the_median_of_gaps_queued_far_ahead_and_says_so() -> None:
    calls = [call(i, i + 1, i + 1) for i in range(5)]
    ops, at = [], 60 * US
    for number, gap in enumerate((0, 900, 1100, 1000, 5000)):
        ops.append(op(at + gap, at + gap + 10 * US, number + 1))
        at += gap + 10 * US
    (device,) = analyze(trace_of(*calls, *ops)).report.devices
    assert (device.kernel_floor_ns, device.kernel_floor_estimated) == (1000, True)
    assert device.gaps["kernel_floor"].total_ns == 1900
    assert device.gaps["launch_latency"].total_ns == 6100


def test_waiting_for_another_stream_or_an_event_is_no_estimate_of_the_floor() -> None:
    calls = [call(n, n + 1, n + 1) for n in range(2)]
    ops = [op(0, 100_000, 1), op(600_000, 700_000, 2, stream=8)]
    device = analyze(trace_of(*calls, *ops)).report.devices[0]
    assert device.kernel_floor_ns is None
    assert device.gaps["dependency"].total_ns == 500_000
    wait = call(1, 1, 9, name="cudaStreamWaitEvent")
    one_stream = [op(0, 100_000, 1), op(600_000, 700_000, 2)]
    device = analyze(trace_of(calls[0], wait, call(2, 3, 2), *one_stream)).report.devices[0]
    assert device.kernel_floor_ns is None
    assert device.gaps["dependency"].total_ns == 500_000


def test_a_floor_measured_with_the_capture_replaces_the_estimate() -> None:
    ops = [op(0, 10, 1), op(1210, 1300, 2), op(2501, 2600, 3)]
    calls = [call(-99, -98, 1), call(-97, -96, 2), call(-95, -94, 3)]
    capture = {**CAPTURE, "kernel_floor_ns": 1200}
    (device,) = analyze(trace_of(*calls, *ops, decodescope=capture)).report.devices
    assert (device.kernel_floor_ns, device.kernel_floor_estimated) == (1200, False)
    assert device.gaps["kernel_floor"].total_ns == 1200
    assert device.gaps["launch_latency"].total_ns == 1201
    (unknown,) = analyze(trace_of(*calls, *ops)).report.devices
    assert (unknown.kernel_floor_ns, unknown.kernel_floor_estimated) == (None, False)


def test_largest_gaps_come_first_with_their_neighbours() -> None:
    events = [op(0, 10, 1, name="a"), op(15, 20, 2, name="b"), call(30, 31, 3), op(70, 80, 3)]
    first, second = analyze(trace_of(*events)).report.largest_gaps
    assert (first.at_ns, first.length_ns, first.gap_class, first.label) == (
        *(20, 50, "launch_latency"),
        None,
    )
    assert first.parts == {"host_wait": 10, "launch_call": 1, "launch_latency": 39}
    assert (first.prev, first.next, first.call) == ("b", "kernel", "cudaLaunchKernel")
    assert (second.prev, second.next, second.call, second.label) == ("a", "b", None, None)
