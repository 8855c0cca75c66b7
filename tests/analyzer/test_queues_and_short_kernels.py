"""Queue depth over time and short kernels, against looking at every microsecond and every op."""

import pytest
from drawn_windows import US, Call, Op, analysed, windows
from hypothesis import given, settings
from kineto_events import call, op, trace_of

from decodescope.analyzer import analyze
from decodescope.analyzer.report import QueueDepth, ShortKernels


def slow_queue_depth(ops: list[Op], calls: list[Call]) -> QueueDepth | None:
    called = {c.correlation: c.start for c in calls}
    depths: list[int] = []
    for device in {o.device for o in ops if o.correlation in called}:
        mine = [o for o in ops if o.device == device]
        queued = [(called[o.correlation], o.start) for o in mine if o.correlation in called]
        window = range(min(o.start for o in mine), max(o.end for o in mine), US)
        depths += [sum(begin <= at < end for begin, end in queued) for at in window]
    if not depths:
        return None
    return QueueDepth(
        mean=pytest.approx(sum(depths) / len(depths)),
        max=max(depths),
        empty_share=pytest.approx(depths.count(0) / len(depths)),
    )


@given(windows())
@settings(max_examples=200, deadline=None)
def test_queue_depth_over_time(window: tuple[list[Op], list[Call]]) -> None:
    ops, calls = window
    found = analysed(ops, calls).report.launches.queue_depth
    expected = slow_queue_depth(ops, calls)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.mean == expected.mean
        assert (found.max, found.empty_share) == (expected.max, expected.empty_share)


@given(windows())
@settings(max_examples=150, deadline=None)
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
            call(0, 50, 1, name="cudaMemcpyAsync"), op(10, 20, 1, cat="gpu_memcpy"),
            call(60, 99, 2, name="cudaGraphLaunch"), op(100, 101, 2),
            call(110, 119, 3), op(130, 135, 3, name="short"),
            call(140, 142, 4), op(150, 155, 4, name="long"),
        )
    ).report  # fmt: skip
    assert report.launches.short_kernels == ShortKernels(1, 0.5, 5, 9)
    assert {k.name: k.short_calls for k in report.kernels} == {"kernel": 0, "short": 1, "long": 0}
