"""Launch calls, steps and the whole report on traces made by hand."""

import json

import pytest

from decodescope.analyzer import analyze
from decodescope.analyzer.schema.kernel_report import Percentiles
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.step_annotations import step_kind
from tests.helpers.kineto_events import PID, Event, call, event, op, span, trace_of


def report_of(*events: Event, **keys: object) -> Report:
    return analyze(trace_of(*events, **keys)).report


def test_a_launch_call_is_one_that_put_work_on_a_device() -> None:
    apis = [
        "cudaLaunchKernel",
        "cudaLaunchKernelExC",
        "cuLaunchKernelEx",
        "hipMemcpyAsync",
        "cudaLaunchCooperativeKernel",
        "someFutureLaunch",
    ]
    calls = [call(10 * i, 10 * i + 2, i + 1, name=name) for i, name in enumerate(apis)]
    idle = [call(100, 101, 50), call(110, 111, 51, name="cudaDeviceSynchronize")]
    ops = [op(10 * i + 4, 10 * i + 6, i + 1) for i in range(len(apis))]
    launches = report_of(*calls, *idle, *ops).launches
    assert launches.calls == 6
    assert launches.by_api == dict.fromkeys(sorted(apis), 1)


def _p50_p99(values: Percentiles | None) -> tuple[int, int]:
    assert values is not None
    return values.p50, values.p99


def test_times_of_launches() -> None:
    launches = report_of(
        call(0, 4, 1),
        op(10, 20, 1),
        call(12, 18, 2),
        op(15, 30, 2),
        call(40, 41, 3),
        op(43, 50, 3),
    ).launches
    assert _p50_p99(launches.api_ns) == (4, 6)
    assert _p50_p99(launches.queue_ns) == (2, 6)
    assert _p50_p99(launches.launch_latency_ns) == (3, 10)


def test_queue_time_is_null_where_every_op_starts_during_its_call() -> None:
    assert report_of(call(0, 10, 1), op(5, 20, 1)).launches.queue_ns is None


def test_ops_before_their_call_are_a_finding() -> None:
    report = report_of(call(10, 12, 1), op(5, 20, 1))
    assert "starts_before_call" in {finding.code for finding in report.health.findings}
    assert _p50_p99(report.launches.launch_latency_ns) == (-5, -5)


def test_graph_launches_count_once_with_all_their_ops() -> None:
    launches = report_of(
        call(0, 5, 1, name="cudaGraphLaunch"),
        op(6, 8, 1),
        op(9, 12, 1),
        op(12, 14, 1),
        call(20, 25, 2),
        op(26, 30, 2),
        call(30, 35, 3, name="cudaGraphLaunch"),
        op(36, 40, 3),
    ).launches
    assert (launches.calls, launches.graph_launches) == (3, 2)
    assert launches.gpu_ops_per_graph_launch == (3, 1)


def test_queue_depth_is_one_for_a_starved_device_and_deep_for_a_fed_one() -> None:
    starved = [
        e
        for i in range(5)
        for e in (call(10 * i, 10 * i + 1, i + 1), op(10 * i + 3, 10 * i + 6, i + 1))
    ]
    assert report_of(*starved).launches.median_queue_depth == 1
    fed = [e for i in range(5) for e in (call(i, i + 1, i + 1), op(100 + i, 101 + i, i + 1))]
    assert report_of(*fed).launches.median_queue_depth == 3
    graph = [call(0, 1, 1, name="cudaGraphLaunch"), *(op(5 + i, 6 + i, 1) for i in range(9))]
    assert report_of(*graph).launches.median_queue_depth == 9


def test_two_devices_have_their_own_windows_queues_and_overlap() -> None:
    report = report_of(
        call(0, 1, 1),
        op(10, 20, 1, device=0),
        op(15, 30, 1, device=0),
        call(2, 3, 2),
        op(40, 50, 2, device=1, stream=9),
        op(45, 60, 2, device=1, stream=10),
        deviceProperties=[{"id": 0, "name": "A"}, {"id": 1, "name": "B"}],
    )
    first, second = report.devices
    assert (first.device, first.name, first.window_ns, first.busy_ns) == (0, "A", 20, 20)
    assert (second.device, second.name, second.window_ns, second.busy_ns) == (1, "B", 20, 20)
    assert (first.overlap_ns, second.overlap_ns) == (5, 0)
    assert report.launches.median_queue_depth == 2


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("decode_step", "decode_step"),
        ("decode_step_17", "decode_step"),
        ("decode_step#3", "decode_step"),
        ("ProfilerStep#1009", "ProfilerStep"),
        ("Iteration 5", "Iteration"),
        ("train_step_3", "train_step"),
        ("layer.3", "layer.3"),
        ("optimizer_step", "optimizer_step"),
        ("step_by_step", "step_by_step"),
        ("decode_step_extra", "decode_step_extra"),
    ],
)
def test_names_of_step_markers(name: str, kind: str) -> None:
    assert step_kind(name) == kind


def step_rows(report: Report) -> list[tuple[str, int, int]]:
    return [(step.name, step.launch_calls, step.gpu_ops) for step in report.steps]


def test_ops_belong_to_the_step_that_launched_them() -> None:
    report = report_of(
        span(0, 100, "decode_step_0"),
        span(100, 200, "decode_step_1"),
        call(90, 95, 1),
        op(150, 160, 1),
        call(99, 105, 2, name="cudaGraphLaunch"),
        op(170, 180, 2),
        op(190, 195, 2),
        call(100, 104, 3),
        op(250, 260, 3),
        call(201, 204, 4),
        op(300, 310, 4),
        op(320, 330),
    )
    assert step_rows(report) == [("decode_step_0", 2, 3), ("decode_step_1", 1, 1)]
    first, second = report.steps
    assert (first.host_ns, first.gpu_span_ns, first.busy_ns, first.idle_ns) == (100, 45, 25, 20)
    assert (second.host_ns, second.gpu_span_ns, second.busy_ns, second.idle_ns) == (100, 10, 10, 0)


def test_own_markers_win_over_the_profilers_and_nested_ones_are_one_step() -> None:
    report = report_of(
        span(0, 300, "ProfilerStep#1"),
        span(10, 100, "decode_step"),
        span(20, 50, "decode_step"),
        span(100, 200, "decode_step"),
        call(30, 31, 1),
        op(40, 45, 1),
    )
    assert step_rows(report) == [("decode_step", 1, 1), ("decode_step", 0, 0)]
    assert report.steps[1].gpu_span_ns is None
    assert report.steps[1].idle_ns is None


def test_old_profiler_steps_among_the_operators() -> None:
    marker = event("Operator", "ProfilerStep#7", 0, 100, PID, 1)
    assert step_rows(report_of(marker, call(5, 6, 1), op(10, 20, 1))) == [("ProfilerStep#7", 1, 1)]


def test_a_launch_on_another_thread_belongs_to_the_process_step() -> None:
    report = report_of(
        span(0, 100, "ProfilerStep#1"),
        call(5, 6, 1, tid=2),
        op(10, 20, 1),
    )
    assert step_rows(report) == [("ProfilerStep#1", 1, 1)]


def test_threads_that_step_at_once_keep_their_own_launches() -> None:
    report = report_of(
        span(0, 100, "step 1", tid=1),
        span(50, 150, "step 1", tid=2),
        call(60, 61, 1, tid=1),
        op(70, 75, 1),
        call(62, 63, 2, tid=2),
        op(76, 80, 2),
        call(120, 121, 3, tid=2),
        op(130, 131, 3),
    )
    assert step_rows(report) == [("step 1", 1, 1), ("step 1", 2, 2)]


def test_without_markers_there_are_no_steps_and_a_finding_says_so() -> None:
    report = report_of(span(0, 100, "forward"), call(5, 6, 1), op(10, 20, 1))
    assert report.steps == ()
    assert [finding.code for finding in report.health.findings] == ["no_steps"]
    assert report.health.status == "ok"


def test_kernels_are_summed_by_name_and_shares_are_of_kernels() -> None:
    report = report_of(
        op(0, 10, name="a"),
        op(20, 25, name="b"),
        op(30, 36, name="a"),
        op(40, 90, name="Memcpy", cat="gpu_memcpy"),
    )
    rows = [(k.name, k.count, k.total_ns, k.mean_ns) for k in report.kernels]
    assert rows == [("a", 2, 16, 8), ("b", 1, 5, 5)]
    assert [k.share for k in report.kernels] == [pytest.approx(16 / 21), pytest.approx(5 / 21)]
    assert report.devices[0].kernels == 3


def test_unlinked_ops_are_busy_counted_and_degrade_the_trace() -> None:
    report = report_of(op(0, 10), call(1, 2, 5), op(20, 30, 5), op(40, 50, 99))
    assert report.health.unlinked_gpu_ops == 2
    assert report.health.status == "degraded"
    assert report.devices[0].busy_ns == 30
    assert report.devices[0].gaps["unlinked"].total_ns == 10


def test_the_report_is_the_documented_json() -> None:
    import msgspec

    report = report_of(span(0, 100, "decode_step"), call(5, 6, 1), op(10, 20, 1))
    data = json.loads(msgspec.json.encode(report))
    assert {
        "schema_version",
        "source",
        "health",
        "devices",
        "launches",
        "steps",
        "kernels",
        "ranges",
        "answer",
    } <= set(data)
    assert data["schema_version"] == 3
    assert set(data["devices"][0]["gaps"]) == {
        *("unlinked", "graph_internal", "host_wait", "launch_call", "kernel_floor", "dependency"),
        "launch_latency",
    }
    assert data["launches"]["api_ns"] == {
        **dict.fromkeys(("p50", "p90", "p99", "min", "max"), 1),
        "histogram": [[1, 1]],
    }
    assert msgspec.json.decode(msgspec.json.encode(report), type=Report) == report
