"""rocprofv3's JSON: what is joined with what, figures against a slow count, damage, other keys."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers import byte_source, json_text
from decodescope.analyzer.readers.rocprof.document import GPU_AGENT, Agent, Devices, Handle
from decodescope.analyzer.trace import KERNEL, MEMCPY, Trace
from tests.fuzzing.damage import damage_bytes
from tests.helpers.foreign.rocprof_files import CPU, GPU, Process, document, write
from tests.helpers.kineto_events import codes
from tests.helpers.reports import analyzed


def names_of(trace: Trace, column: Any) -> list[str]:
    return [trace.names[index] for index in column]


def one_step() -> Process:
    process = Process()
    process.marker(5, 500, 1, "decode_step")
    process.call(10, 20, 2)
    process.kernel(30, 60, 2)
    process.call(40, 50, 3, name="hipMemcpyAsync")
    process.copy(70, 75, 3, source=GPU, target=CPU)
    process.call(80, 90, 4, name="hipGraphLaunch")
    process.kernel(100, 130, 4, kernel=8)
    process.kernel(135, 140, 4)
    process.marker(200, 200, 9, "a mark", name="roctxMarkA")
    process.marker(210, 211, 10, None, name="roctxProfilerPause")
    return process


def test_one_step(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "results.json", one_step()))
    assert trace.source.format == "rocprof-json"
    assert trace.source.events == 10
    assert trace.ops.start_ns.tolist() == [30, 70, 100, 135]
    assert trace.ops.end_ns.tolist() == [60, 75, 130, 140]
    assert trace.ops.kind.tolist() == [KERNEL, MEMCPY, KERNEL, KERNEL]
    assert names_of(trace, trace.ops.name) == [
        "void gemm<float>(float*)",
        "Memcpy DtoH",
        "__amd_rocclr_fillBufferAligned",
        "void gemm<float>(float*)",
    ]
    assert names_of(trace, trace.calls.name[trace.ops.launch]) == [
        "hipLaunchKernel",
        "hipMemcpyAsync",
        "hipGraphLaunch",
        "hipGraphLaunch",
    ]
    assert (trace.ops.stream.tolist(), trace.ops.device.tolist()) == ([5] * 4, [0] * 4)
    assert (trace.calls.pid.tolist(), trace.calls.tid.tolist()) == ([100] * 3, [101] * 3)
    assert names_of(trace, trace.ranges.name) == ["decode_step"]
    assert trace.device_names == {0: "AMD Instinct MI300X"}
    report = analyze(trace).report
    assert (report.launches.calls, report.launches.graph_launches) == (3, 1)
    assert [(step.gpu_ops, step.launch_calls) for step in report.steps] == [(4, 3)]
    assert report.ranges[0].path == "decode_step"
    assert report.health.unlinked_gpu_ops == 0


def test_an_hsa_call_belongs_to_the_hip_call_around_it(tmp_path: Path) -> None:
    process = Process()
    process.call(10, 40, 2)
    process.call(20, 30, 3, name="hsa_signal_store_screlease")
    process.kernel(50, 60, 3)
    process.call(20, 30, 4, name="hsa_signal_store_screlease", tid=102)
    process.kernel(70, 80, 4)
    trace = load(write(tmp_path / "results.json", process))
    assert names_of(trace, trace.calls.name) == ["hipLaunchKernel", "hsa_signal_store_screlease"]
    assert trace.calls.tid.tolist() == [101, 102]
    assert trace.ops.launch.tolist() == [0, 1]


@given(st.randoms(use_true_random=False))
def test_hsa_calls_find_the_hip_call_of_their_thread(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    process = Process()
    hip = []
    for tid in rng.sample(range(1, 9), 3):
        at = rng.randrange(20)
        for _ in range(rng.randrange(6)):
            at += rng.randrange(1, 9)
            hip.append((at, at + rng.randrange(9), tid, 100 + len(hip)))
            at = hip[-1][1]
    for start, end, tid, number in hip:
        process.call(start, end, number, tid=tid)
    expected = []
    for number in range(1, 12):
        start, tid = rng.randrange(1, 60), rng.randrange(1, 9)
        end = start + rng.randrange(4)
        process.call(start, end, number, name="hsa_queue_create", tid=tid)
        process.kernel(1000 + number, 1001 + number, number)
        around = [one for one in hip if one[2] == tid and one[0] <= start]
        around = [one for one in around[-1:] if end <= one[1]]
        expected.append(around[0][3] if around else number)
    path = tmp_path_factory.getbasetemp() / "hsa.json"
    trace = load(write(path, process))
    assert trace.ops.correlation.tolist() == expected
    assert trace.calls.correlation[trace.ops.launch].tolist() == expected


def test_hardware_queues_are_streams_where_no_hip_stream_is_named(tmp_path: Path) -> None:
    for streams, expected in ((True, [0, 9]), (False, [3, 4])):
        process = Process(streams=streams)
        process.kernel(10, 20, 1, queue=3, stream=0)
        process.kernel(30, 40, 2, queue=4, stream=9)
        trace = load(write(tmp_path / "results.json", process))
        assert trace.ops.stream.tolist() == expected
        assert "no_hip_trace" in codes(trace)


def test_copies_are_named_by_their_ends_and_lie_on_their_gpu(tmp_path: Path) -> None:
    process = Process(gpus=2)
    ways = [(CPU, GPU), (GPU + 1, CPU), (GPU, GPU), (GPU + 1, GPU), (CPU, CPU), (CPU, 12345)]
    for at, (source, target) in enumerate(ways, start=1):
        process.copy(10 * at, 10 * at + 5, at, source=source, target=target)
    trace = load(write(tmp_path / "results.json", process))
    assert list(zip(names_of(trace, trace.ops.name), trace.ops.device.tolist(), strict=True)) == [
        ("Memcpy HtoD", 0),
        ("Memcpy DtoH", 1),
        ("Memcpy DtoD", 0),
        ("Memcpy PtoP", 1),
        ("Memcpy HtoD", 2),
    ]
    (copies,) = (one.message for one in trace.findings if one.code == "host_copies")
    assert copies.startswith("1 ")


def test_processes_with_the_same_ids_are_kept_apart(tmp_path: Path) -> None:
    processes = [Process(pid=pid) for pid in (100, 200)]
    for later, process in enumerate(processes):
        process.call(10 + later, 15, 5, tid=process.pid + 1)
        process.kernel(30 + later, 60, 5)
    trace = load(write(tmp_path / "results.json", *processes))
    assert trace.calls.pid[trace.ops.launch].tolist() == [100, 200]
    assert len(set(trace.ops.stream.tolist())) == 2


def test_records_without_usable_times_are_left_out_and_counted(tmp_path: Path) -> None:
    process = Process()
    for start, end in ((0, 10), (0, 0), (20, 10), (10, 2**64 - 1), (2**63, 2**63 + 5), (10, 2**62)):
        process.kernel(start, end, 1)
    process.kernel(10, 20, 2**64 - 1)
    trace = load(write(tmp_path / "results.json", process))
    assert (trace.ops.start_ns.tolist(), trace.ops.correlation.tolist()) == ([10], [-1])
    (dropped,) = (one.message for one in trace.findings if one.code == "dropped_events")
    assert dropped.startswith("6 ")


@pytest.mark.parametrize("number", [-1, 2**31, 2**64, 10**30])
def test_ids_of_any_size_are_read(number: int, tmp_path: Path) -> None:
    process = Process(pid=number)
    process.agents[1]["logical_node_type_id"] = number
    process.call(10, 20, 1, tid=number)
    process.kernel(30, 40, 1, kernel=number, queue=number, stream=number)
    trace = load(write(tmp_path / "results.json", process))
    assert (trace.ops.device.tolist(), trace.ops.launch.tolist()) == ([0], [0])
    assert trace.device_names == {0: "AMD Instinct MI300X"}
    assert analyze(trace).report.devices[0].busy_ns == 10


def test_devices_are_numbered_in_linear_time() -> None:
    agents = [Agent(Handle(number), GPU_AGENT) for number in range(200_000)]
    devices = Devices(agents)
    assert [devices.number(handle) for handle in range(400_000)] == list(range(400_000))


def test_an_old_version_with_fewer_keys(tmp_path: Path) -> None:
    process = one_step().data()
    for agent in process["agents"]:
        agent.pop("logical_node_type_id", None)
    for key in ("counters", "metadata"):
        del process[key]
    del process["buffer_records"]["hsa_api"]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}, indent=1))
    assert analyze(load(path)).report.launches.calls == 3


def test_a_file_without_kernels_says_what_to_record(tmp_path: Path) -> None:
    for processes in ((), (Process(),)):
        trace = load(write(tmp_path / "results.json", *processes))
        report = analyze(trace).report
        assert report.health.status == "no_gpu_activity"
        assert any("--runtime-trace" in one.message for one in report.health.findings)


records = st.lists(
    st.tuples(st.integers(1, 400), st.integers(0, 60), st.integers(1, 20), st.integers(0, 2)),
    min_size=1,
    max_size=40,
)


@given(records, records)
def test_figures_agree_with_a_count_over_the_json(
    tmp_path_factory: pytest.TempPathFactory, kernels: Any, calls: Any
) -> None:
    process = Process(gpus=3)
    for start, length, correlation, gpu in kernels:
        process.kernel(start, start + length, correlation, agent=GPU + gpu, stream=gpu + 1)
    for number, (start, length, _, _) in enumerate(calls, start=1):
        process.call(start, start + length, number)
    path = tmp_path_factory.getbasetemp() / "drawn.json"
    report = analyze(load(write(path, process))).report
    (stored,) = json.loads(path.read_bytes())["rocprofiler-sdk-tool"]
    dispatches = stored["buffer_records"]["kernel_dispatch"]
    called = {one["correlation_id"]["internal"] for one in stored["buffer_records"]["hip_api"]}
    unlinked = [one for one in dispatches if one["correlation_id"]["internal"] not in called]
    assert report.health.unlinked_gpu_ops == len(unlinked)
    spans: dict[int, list[tuple[int, int]]] = {}
    for one in dispatches:
        span = one["start_timestamp"], one["end_timestamp"]
        spans.setdefault(one["dispatch_info"]["agent_id"]["handle"] - GPU, []).append(span)
    assert {device.device for device in report.devices} == set(spans)
    for device in report.devices:
        mine = spans[device.device]
        cuts = sorted({time for span in mine for time in span})
        busy = sum(
            after - before
            for before, after in pairwise(cuts)
            if any(start <= before and after <= end for start, end in mine)
        )
        assert (device.gpu_ops, device.busy_ns) == (len(mine), busy)
        assert device.window_ns == cuts[-1] - cuts[0]
    assert sum(kernel.total_ns for kernel in report.kernels) == sum(
        end - start for mine in spans.values() for start, end in mine
    )


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_the_order_of_records_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, rng: random.Random
) -> None:
    path = tmp_path_factory.getbasetemp() / "shuffled.json"
    process = one_step()
    ordered = analyze(load(write(path, process))).report
    for records in process.records.values():
        rng.shuffle(records)
    assert analyze(load(write(path, process))).report == ordered


def test_it_is_exported(tmp_path: Path) -> None:
    trace = load(write(tmp_path / "results.json", one_step()))
    export_chrome(analyze(trace), tmp_path / "chrome.json")
    again = load(tmp_path / "chrome.json")
    assert np.array_equal(np.diff(again.ops.start_ns), np.diff(trace.ops.start_ns))
    assert names_of(again, again.calls.name) == names_of(trace, trace.calls.name)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"rocprofiler-sdk-tool": 5}', "not as rocprofv3 writes"),
        (b'{"rocprofiler-sdk-tool": [{"buffer_records": {"kernel_dispatch": [{}]}}]}', "missing"),
        (b'{"rocprofiler-sdk-tool": [', "broken JSON of rocprofv3"),
        (b'{"rocprofiler-sdk-tool": [' + b"[" * 100_000, "not as|broken"),
        (document(one_step())[:-30], "broken JSON of rocprofv3"),
    ],
)
def test_what_is_damaged_is_one_line(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


@given(st.integers(0, 2**64))
def test_damaged_bytes(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(damage_bytes(document(one_step()), random.Random(seed)))
    try:
        trace = load(path)
    except TraceError as error:
        message = str(error)
    else:
        analyzed(trace)
        return
    assert "\n" not in message


def test_names_that_are_no_utf_8_are_kept_readable(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(document(one_step()).replace(b"void gemm", b"void \xff\xfegemm"))
    assert any("gemm<float>" in name for name in load(path).names)


@pytest.mark.parametrize("late", ["agents", "strings", "kernel_symbols"])
def test_names_behind_the_records_that_need_them_are_refused(late: str, tmp_path: Path) -> None:
    process = one_step().data()
    process[late] = process.pop(late)
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [process]}))
    with pytest.raises(TraceError, match=f"lists its {late}.* behind the records"):
        load(path)


def test_keys_that_no_figure_needs_may_hold_anything(tmp_path: Path) -> None:
    process = one_step().data()
    anything = [1, "}, {", {"a": [{"b": "]"}, {}]}, [[]], None, {"c": {"d": [{"e": 1.5}] * 3}}]
    others = {f"other{number}": value for number, value in enumerate(anything)}
    records = {**others, **process["buffer_records"], "rccl_api": [{"size": 1}] * 9}
    document = {
        **others,
        "rocprofiler-sdk-tool": [{**others, **process, "buffer_records": records}],
    }
    path = tmp_path / "results.json"
    path.write_bytes(json.dumps({"rocprofiler-sdk-tool": [], **document}).encode())
    plain = load(write(tmp_path / "plain.json", one_step()))
    assert len(load(path).ops) == len(plain.ops) == 4
    assert len(load(path).calls) == len(plain.calls)


def test_records_in_many_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = []
    for pid in (100, 200):
        process = Process(pid=pid)
        for number in range(1, 60):
            process.call(20 * number, 20 * number + 9, number)
            process.call(20 * number + 2, 20 * number + 5, 100 + number, name="hsa_queue_create")
            process.kernel(20 * number + 30, 20 * number + 35, 100 + number)
        processes.append(process)
    path = write(tmp_path / "results.json", *processes)
    whole = load(path)
    monkeypatch.setattr(byte_source, "_PIECE_BYTES", 4_100)
    pieces = load(path)
    for column in ("start_ns", "stream", "correlation", "launch", "shape"):
        assert (getattr(pieces.ops, column) == getattr(whole.ops, column)).all()
    assert len(whole.calls) == 118
    assert (whole.calls.pid[whole.ops.launch[whole.ops.stream < 1 << 32]] == 100).all()
    assert analyze(pieces).report == analyze(whole).report


def test_one_value_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_MAX_VALUE_BYTES", 1 << 16)
    monkeypatch.setattr(byte_source, "_PIECE_BYTES", 1 << 13)
    path = tmp_path / "results.json"
    path.write_bytes(document(one_step())[:-3] + b', "other": "' + b"x" * (1 << 18) + b'"}]}')
    with pytest.raises(TraceError, match="a value of over 0 MiB"):
        load(path)
