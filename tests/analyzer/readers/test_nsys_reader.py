"""Nsight Systems exports: joins per process, ranges, graphs, old and new schemas."""

from pathlib import Path

import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.trace import GRAPH, KERNEL, MEMCPY, MEMSET, Trace
from tests.helpers.foreign.nsys_files import MARK, START_END, Export, global_pid, global_tid
from tests.helpers.kineto_events import codes


def names_of(trace: Trace, column: object) -> list[str]:
    return [trace.names[index] for index in column]  # type: ignore[attr-defined]


def one_step() -> Export:
    export = Export()
    export.span(0, 1000, "decode_step")
    export.call(10, 20, 5)
    export.kernel(30, 60, 5)
    export.call(40, 50, 6, name="cudaMemcpyAsync_v3020")
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        start=70,
        end=75,
        deviceId=0,
        streamId=7,
        correlationId=6,
        globalPid=global_pid(100),
        bytes=8,
        copyKind=2,
        srcKind=2,
        dstKind=1,
    )
    export.add(
        "CUPTI_ACTIVITY_KIND_MEMSET",
        start=80,
        end=81,
        deviceId=0,
        streamId=7,
        correlationId=99,
        globalPid=global_pid(100),
        bytes=8,
        memKind=2,
    )
    return export


def test_a_newer_schema_is_named(tmp_path: Path) -> None:
    for version, newer in (("3.25.0", False), ("4.1.0", True), ("", False), ("9" * 5_000, True)):
        export = Export()
        export.kernel(10, 20, 1)
        export.add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value=version)
        trace = load(export.write(tmp_path / f"{newer}{len(version)}.sqlite"))
        assert len(trace.ops) == 1
        said = [one.message for one in trace.findings if one.code == "newer_schema"]
        assert len(said) == newer
        if version == "4.1.0":
            assert said[0].startswith("the export has schema 4.1.0; known are those up to 3.x")


def test_one_step(tmp_path: Path) -> None:
    trace = load(one_step().write(tmp_path / "a.sqlite"))
    assert trace.ops.start_ns.tolist() == [30, 70, 80]
    assert trace.ops.end_ns.tolist() == [60, 75, 81]
    assert trace.ops.kind.tolist() == [KERNEL, MEMCPY, MEMSET]
    assert names_of(trace, trace.ops.name) == [
        "kernel<float>(int)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memset (Device)",
    ]
    assert trace.ops.launch.tolist() == [0, 1, -1]
    assert names_of(trace, trace.calls.name) == ["cudaLaunchKernel", "cudaMemcpyAsync"]
    assert (trace.calls.pid.tolist(), trace.calls.tid.tolist()) == ([100, 100], [111, 111])
    assert trace.source.format == "nsys-sqlite"
    assert trace.source.events == 6
    report = analyze(trace).report
    assert [step.gpu_ops for step in report.steps] == [2]
    assert report.health.unlinked_gpu_ops == 1


def test_two_processes_with_the_same_correlation_ids(tmp_path: Path) -> None:
    export = Export()
    for device, pid in enumerate((100, 200)):
        export.call(10 + device, 12 + device, 5, pid=pid, tid=pid + 1)
        export.kernel(30 + device, 60, 5, pid=pid, device=device)
    trace = load(export.write(tmp_path / "a.sqlite"))
    launching = trace.calls.pid[trace.ops.launch].tolist()
    assert list(zip(trace.ops.device.tolist(), launching, strict=True)) == [(0, 100), (1, 200)]
    assert trace.ops.correlation.tolist() == [5, 5 + (1 << 32)]
    assert codes(trace) == set()


def test_processes_that_each_call_their_gpu_device_0(tmp_path: Path) -> None:
    export = Export()
    for number, pid in ((1, 100), (0, 200)):
        export.add("TARGET_INFO_CUDA_DEVICE", gpuId=number, cudaId=0, pid=pid)
        export.add("TARGET_INFO_GPU", id=number, name=f"NVIDIA H100 #{number}")
        export.kernel(10, 20, 5, pid=pid, device=0, stream=7)
    trace = load(export.write(tmp_path / "mapped.sqlite"))
    assert sorted(trace.ops.device.tolist()) == [0, 1]
    assert trace.device_names == {0: "NVIDIA H100 #0", 1: "NVIDIA H100 #1"}
    assert codes(trace) == set()


def test_one_device_of_two_processes_is_said_and_their_streams_stay_apart(tmp_path: Path) -> None:
    export = Export()
    export.kernel(10, 20, 5, pid=100)
    export.kernel(15, 25, 5, pid=200)
    trace = load(export.write(tmp_path / "shared.sqlite"))
    assert set(trace.ops.device.tolist()) == {0}
    assert trace.ops.stream.tolist() == [7, 7 + (1 << 32)]
    assert "shared_device" in codes(trace)
    assert analyze(trace).report.devices[0].overlap_ns == 0


def test_ranges_of_every_kind(tmp_path: Path) -> None:
    export = Export()
    export.span(0, 100, "pushed")
    export.span(5, 90, "registered", registered=True)
    export.span(10, 80, "from a domain", domain=3)
    export.span(12, 200, "started", kind=START_END, tid=9)
    export.span(50, 50, "mark", kind=MARK)
    export.span(60, None, "never popped")
    export.span(20, 30, "aten::mm, seq = 7, op_id = 12, sizes = [[1, 2], [2, 3]]")
    export.span(22, 24, "aten::empty.memory_format, op_id = 13")
    export.span(40, 44, "FSDP::forward (layer.0), op_id = 14")
    export.span(45, 46, "aten::mm by hand")
    trace = load(export.write(tmp_path / "a.sqlite"))
    assert names_of(trace, trace.ranges.name) == [
        "pushed",
        "registered",
        "from a domain",
        "started",
        "FSDP::forward (layer.0)",
        "aten::mm by hand",
    ]
    assert trace.ranges.tid.tolist() == [111, 111, 111, 9, 111, 111]
    assert names_of(trace, trace.cpu_ops.name) == ["aten::mm", "aten::empty.memory_format"]
    assert codes(trace) == {"open_ended_events"}


def graph_launch(export: Export, at: int, correlation: int) -> None:
    export.call(at, at + 10, correlation, name="cudaGraphLaunch_v10000")


def test_graph_nodes_carry_their_launch(tmp_path: Path) -> None:
    export = Export()
    graph_launch(export, 0, 5)
    export.kernel(20, 30, 5, node=(3 << 32) | 1)
    export.kernel(31, 40, 5, node=(3 << 32) | 2)
    export.kernel(50, 60, 6)
    trace = load(export.write(tmp_path / "a.sqlite"))
    assert trace.ops.graph_id.tolist() == [3, 3, -1]
    assert trace.ops.graph_node_id.tolist() == [(3 << 32) | 1, (3 << 32) | 2, -1]
    report = analyze(trace).report
    assert report.launches.gpu_ops_per_graph_launch == (2,)
    assert report.devices[0].gaps["graph_internal"].total_ns == 1


def test_a_graph_traced_as_a_whole_is_busy_time_and_no_kernel(tmp_path: Path) -> None:
    export = Export()
    graph_launch(export, 0, 5)
    export.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=20,
        end=120,
        deviceId=0,
        streamId=7,
        correlationId=5,
        globalPid=global_pid(100),
        graphId=2,
        graphExecId=4,
    )
    graph_launch(export, 200, 6)
    export.kernel(220, 230, 6, node=(2 << 32) | 1)
    export.add(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        start=215,
        end=235,
        deviceId=0,
        streamId=7,
        correlationId=6,
        globalPid=global_pid(100),
        graphId=2,
        graphExecId=4,
    )
    trace = load(export.write(tmp_path / "a.sqlite"))
    assert trace.ops.kind.tolist() == [GRAPH, KERNEL]
    assert names_of(trace, trace.ops.name)[0] == "CUDA graph 4"
    (finding,) = [one for one in trace.findings if one.code == "graph_level_trace"]
    assert "--cuda-graph-trace=node" in finding.message
    analysis = analyze(trace)
    device = analysis.report.devices[0]
    assert (device.kernels, device.gpu_ops, device.busy_ns) == (1, 2, 110)
    export_chrome(analysis, tmp_path / "exported.json")
    assert load(tmp_path / "exported.json").ops.kind.tolist() == [GRAPH, KERNEL]


def test_the_wall_clock_of_both_kinds_of_times(tmp_path: Path) -> None:
    relative = Export()
    relative.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    assert load(relative.write(tmp_path / "a.sqlite")).base_ns == 1_700_000_000_000_000_000
    system = Export()
    system.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700, systemClockNs=500)
    assert load(system.write(tmp_path / "b.sqlite")).base_ns == 1_200
    system.add("ANALYSIS_DETAILS", globalVid=1, duration=9, startTime=600, stopTime=609)
    assert load(system.write(tmp_path / "c.sqlite")).base_ns == 1_100


def test_what_nsight_and_the_profiler_say(tmp_path: Path) -> None:
    export = one_step()
    export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=1, text="started")
    export.add("DIAGNOSTIC_EVENT", timestamp=0, severity=3, text="CUDA events\nwere lost")
    export.add("CUPTI_ACTIVITY_KIND_OVERHEAD", start=0, end=2_000_000, overheadType=3)
    export.add("CUPTI_ACTIVITY_KIND_OVERHEAD", start=0, end=9_000_000, overheadType=8)
    trace = load(export.write(tmp_path / "a.sqlite"))
    messages = {finding.code: finding.message for finding in trace.findings}
    assert messages["nsys_diagnostics"] == "Nsight Systems warned 1 times: CUDA events were lost"
    assert "1 pauses of its own, 2.000 ms" in messages["profiler_overhead"]


@pytest.mark.parametrize(
    "columns",
    [
        ("graphId",),
        ("graphNodeId", "graphId"),
        ("demangledName",),
        ("shortName", "mangledName"),
        ("textId", "endGlobalTid", "domainId"),
        ("eventType",),
        ("srcKind", "dstKind", "memKind"),
        ("systemClockNs", "overheadType", "eventClass"),
    ],
)
def test_columns_of_other_versions_may_be_missing(tmp_path: Path, columns: tuple[str, ...]) -> None:
    trace = load(one_step().write(tmp_path / "a.sqlite", without_columns=columns))
    assert trace.ops.launch.tolist() == [0, 1, -1]
    assert [step.gpu_ops for step in analyze(trace).report.steps] == [2]


@pytest.mark.parametrize(
    "table",
    [
        "META_DATA_EXPORT",
        "StringIds",
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "NVTX_EVENTS",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "TARGET_INFO_GPU",
        "DIAGNOSTIC_EVENT",
    ],
)
def test_tables_may_be_missing(tmp_path: Path, table: str) -> None:
    report = analyze(load(one_step().write(tmp_path / "a.sqlite", without=(table,)))).report
    missing = table == "CUPTI_ACTIVITY_KIND_MEMSET"
    assert report.devices[0].gpu_ops == (2 if missing else 3)


def test_a_profile_without_cuda_is_said(tmp_path: Path) -> None:
    cuda = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")]
    trace = load(one_step().write(tmp_path / "a.sqlite", without=cuda))
    assert "no_cuda_trace" in codes(trace)
    assert analyze(trace).report.health.status == "no_gpu_activity"


def test_an_op_that_names_no_process(tmp_path: Path) -> None:
    alone = one_step()
    trace = load(alone.write(tmp_path / "a.sqlite", without_columns=("globalPid",)))
    assert trace.ops.launch.tolist() == [0, 1, -1]
    alone.call(5, 6, 5, pid=200)
    trace = load(alone.write(tmp_path / "b.sqlite", without_columns=("globalPid",)))
    assert trace.ops.launch.tolist() == [-1, -1, -1]


@pytest.mark.parametrize(
    ("start", "end"), [(50, 40), (None, 5), ("soon", 5), (1.5, 9), (0, 2**62), (-(2**63), 0)]
)
def test_times_that_are_none(tmp_path: Path, start: object, end: object) -> None:
    export = one_step()
    export.add(
        "CUPTI_ACTIVITY_KIND_OVERHEAD", start=0, end=1, overheadType=3
    )  # must not count as read
    export.add("CUPTI_ACTIVITY_KIND_DRIVER", start=start, end=end, globalTid=global_tid(100, 1))
    path = export_with_loose_driver_table(export, tmp_path)
    trace = load(path)
    assert "dropped_events" in codes(trace)
    assert (len(trace.ops), len(trace.calls), trace.source.events) == (3, 2, 6)


def export_with_loose_driver_table(export: Export, folder: Path) -> Path:
    import sqlite3
    from contextlib import closing

    late = [row for row in export.rows if row[0] == "CUPTI_ACTIVITY_KIND_DRIVER"]
    export.rows = [row for row in export.rows if row not in late]
    path = export.write(folder / "a.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER (start, end, globalTid)")
        for _, values in late:
            connection.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_DRIVER VALUES (?, ?, ?)", tuple(values.values())
            )
    return path
