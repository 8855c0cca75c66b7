"""Queue depth over time and short kernels, against a search of every microsecond and op."""

import msgspec
import pytest
from hypothesis import given, settings

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.kernel_report import QueueDepth, ShortKernels
from tests.helpers.drawn_windows import US, Call, Op, analysed, windows
from tests.helpers.kineto_events import call, op, trace_of


def slow_queue_depth(ops: list[Op], calls: list[Call]) -> QueueDepth | None:
    called = {c.correlation: c.start for c in calls}
    depth_at: dict[tuple[int, int], int] = {}
    for device in {o.device for o in ops if o.correlation in called}:
        mine = [o for o in ops if o.device == device]
        queued = [(called[o.correlation], o.start) for o in mine if o.correlation in called]
        for at in range(min(o.start for o in mine), max(o.end for o in mine), US):
            depth_at[device, at] = sum(begin <= at < end for begin, end in queued)
    if not depth_at:
        return None
    depths = list(depth_at.values())
    times = [at for _, at in depth_at]
    begin, end = min(times), max(times) + US
    bucket_ns = next(ns for ns in range(1, end) if ns * 120 >= end - begin)
    over_time = []
    for part in range(begin, end, bucket_ns):
        touched = [d for (_, at), d in depth_at.items() if part - US < at < part + bucket_ns]
        over_time.append(max(touched, default=0))
    return QueueDepth(
        mean=pytest.approx(sum(depths) / len(depths)),
        max=max(depths),
        empty_share=pytest.approx(depths.count(0) / len(depths)),
        over_time=tuple(over_time),
        bucket_ns=bucket_ns,
    )


@given(windows())
@settings(max_examples=65, deadline=None)
def test_queue_depth_over_time(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    found = analysed(ops, calls).report.launches.queue_depth
    expected = slow_queue_depth(ops, calls)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.mean == expected.mean
        assert (found.max, found.empty_share) == (expected.max, expected.empty_share)
        assert (found.over_time, found.bucket_ns) == (expected.over_time, expected.bucket_ns)
        assert len(found.over_time) <= 120
        assert max(found.over_time) == found.max


def test_a_graph_launch_fills_the_queue_and_its_ops_drain_it() -> None:
    graph = [op(1_000 + 100 * place, 1_090 + 100 * place, 1) for place in range(12)]
    report = analyze(trace_of(call(0, 50, 1, name="cudaGraphLaunch"), *graph)).report
    found = report.launches.queue_depth
    assert found is not None
    assert found.bucket_ns == 10
    left = [11 - place // 10 for place in range(119)]
    assert found.over_time == tuple(left)


def test_a_short_part_at_the_end_and_one_of_every_length() -> None:
    for length in (1, 2, 119, 120, 121, 240, 241, 1_000_003):
        trace = trace_of(call(0, 1, 1), call(0, 1, 2), op(5, 5, 1), op(5, 5 + length, 2))
        found = analyze(trace).report.launches.queue_depth
        assert found is not None
        parts, part_ns = len(found.over_time), found.bucket_ns
        assert (parts - 1) * part_ns < length <= parts * part_ns
        assert parts <= 120 < 2 * parts or part_ns == 1
        assert set(found.over_time) == {0}


def test_a_report_without_depths_over_time_still_decodes() -> None:
    old = b'{"mean": 1.5, "max": 3, "empty_share": 0.25}'
    found = msgspec.json.decode(old, type=QueueDepth)
    assert found == QueueDepth(1.5, 3, 0.25, (), 0)


@given(windows())
@settings(max_examples=50, deadline=None)
def test_short_kernels_ran_for_less_time_than_their_call(
    window: tuple[list[Op], list[Call]],
) -> None:
    ops, calls = window
    launches = {c.correlation: c for c in calls if c.name != "cudaGraphLaunch"}
    shared = [o.correlation for o in ops]
    alone = [o for o in ops if o.correlation in launches and shared.count(o.correlation) == 1]
    times = [
        (o.end - o.start, launches[o.correlation].end - launches[o.correlation].start)
        for o in alone
    ]
    short = [(gpu, api) for gpu, api in times if gpu < api]
    report = analysed(ops, calls).report
    expected = None
    if alone:
        expected = ShortKernels(
            count=len(short),
            share=len(short) / len(alone),
            gpu_ns=sum(gpu for gpu, _ in short),
            api_ns=sum(api for _, api in short),
        )
    assert report.launches.short_kernels == expected
    assert sum(kernel.short_calls for kernel in report.kernels) == len(short)


def test_copies_and_graphs_have_no_short_kernels() -> None:
    report = analyze(
        trace_of(
            call(0, 50, 1, name="cudaMemcpyAsync"),
            op(10, 20, 1, cat="gpu_memcpy"),
            call(60, 99, 2, name="cudaGraphLaunch"),
            op(100, 101, 2),
            call(110, 119, 3),
            op(130, 135, 3, name="short"),
            call(140, 142, 4),
            op(150, 155, 4, name="long"),
        )
    ).report
    assert report.launches.short_kernels == ShortKernels(1, 0.5, 5, 9)
    assert {k.name: k.short_calls for k in report.kernels} == {"kernel": 0, "short": 1, "long": 0}
