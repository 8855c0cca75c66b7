"""Gap classes against a slow reference that follows the definitions word by word."""

import pytest
from hypothesis import given, settings

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.gaps import HOST_WAIT_LABELS
from tests.helpers.drawn_windows import US, Call, Op, analysed, windows
from tests.helpers.kineto_events import Event, call, op, trace_of
from tests.helpers.slow_gaps import slow_gaps


@given(windows())
@settings(max_examples=300, deadline=None)
def test_classes_follow_the_definitions(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    analysis = analysed(ops, calls)
    gaps = analysis.gaps
    for report in analysis.report.devices:
        assert isinstance(report.device, int)
        here = (gaps.device == report.device).nonzero()[0].tolist()
        found = [
            (
                int(gaps.start_ns[i]),
                int(gaps.end_ns[i]),
                GAP_CLASSES[gaps.kind[i]],
                HOST_WAIT_LABELS[gaps.label[i]] if gaps.label[i] >= 0 else "",
            )
            for i in here
        ]
        expected = slow_gaps(ops, calls, {report.device})
        assert found == [(g.prev.end, g.next.start, g.kind, g.label) for g in expected]


@given(windows())
@settings(max_examples=150, deadline=None)
def test_classes_add_up_to_idle(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    for device in analysed(ops, calls).report.devices:
        mine = [o for o in ops if o.device == device.device]
        start, end = min(o.start for o in mine), max(o.end for o in mine)
        covered = sum(any(o.start <= at < o.end for o in mine) for at in range(start, end, US))
        assert device.window_ns == end - start
        assert device.busy_ns == covered * US <= device.window_ns
        assert device.idle_ns == device.window_ns - device.busy_ns
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
        waits = device.gaps["host_wait"]
        assert sum(total.total_ns for total in device.host_wait.values()) == waits.total_ns
        assert sum(total.count for total in device.host_wait.values()) == waits.count


CAPTURE = {
    "device": "cuda", "device_name": "NVIDIA H200", "model": "m", "weights": "random",
    "variant": "eager", "dtype": "bf16", "batch": 1, "context": 4, "position": 4, "steps": 2,
    "bytes_per_step": 48_000, "unprofiled_step_ns": 90, "decodescope_version": "0",
}  # fmt: skip


def kinds(*events: Event) -> list[str]:
    gaps = analyze(trace_of(*events)).gaps
    return [GAP_CLASSES[kind] for kind in gaps.kind]


def test_a_call_that_begins_when_prev_ends_is_not_late() -> None:
    assert kinds(op(0, 10, 1), call(10, 12, 2), op(20, 30, 2)) == ["launch_latency"]
    assert kinds(op(0, 10, 1), call(11, 12, 2), op(20, 30, 2)) == ["host_wait"]


def test_ops_of_one_graph_launch_but_not_of_two() -> None:
    first, second = call(0, 5, 1, name="cudaGraphLaunch"), call(6, 9, 2, name="hipGraphLaunch")
    ops = [op(20, 30, 1), op(32, 40, 1), op(45, 50, 2), op(55, 60, 2)]
    assert kinds(first, second, *ops) == ["graph_internal", "launch_latency", "graph_internal"]


def test_graph_ops_need_no_node_ids_and_may_have_them() -> None:
    launch = call(0, 5, 1, name="cudaGraphLaunch")
    node = {"graph id": 1, "graph node id": 1 << 32}
    assert kinds(launch, op(20, 30, 1, **node), op(32, 40, 1, **node)) == ["graph_internal"]


def test_a_gap_of_zero_length_ops_is_two_gaps() -> None:
    report = analyze(trace_of(op(0, 10), op(15, 15), op(20, 30))).report
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
        ("cudaStreamIsCapturing", "python"),
    ],
)
def test_labels_of_host_wait(api: str, label: str) -> None:
    wait = call(5, 90, name=api)
    report = analyze(trace_of(op(0, 10, 1), wait, call(100, 105, 2), op(110, 120, 2))).report
    (device,) = report.devices
    assert device.host_wait[label].total_ns == 100
    assert device.gaps["host_wait"].max_ns == 100


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
        *(20, 50, "host_wait"),
        "python",
    )
    assert (first.prev, first.next, first.call) == ("b", "kernel", "cudaLaunchKernel")
    assert (second.prev, second.next, second.call, second.label) == ("a", "b", None, None)
