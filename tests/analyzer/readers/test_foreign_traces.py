"""Real traces recorded by others: all known figures are reproduced exactly; damaged ones hold."""

import gzip
import json
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.schema.report import Report
from tests.fuzzing.damage import Document, as_json, damage_bytes, damage_events
from tests.helpers.read_once import analysed_once
from tests.helpers.reports import analyzed


@dataclass(frozen=True)
class Known:
    gpu_ops: int
    kernels: int
    launch_calls: int
    graph_launches: int
    unlinked: int
    window_ns: int
    busy_ns: int
    idle_ns: int


KNOWN = {
    "v100_cuda_graph": Known(15632, 9876, 9984, 12, 614, 745239000, 717943000, 27296000),
    "a100_eager": Known(9450, 8568, 9450, 0, 0, 464594000, 388587000, 76007000),
    "h100_qwen1.5_0.5b_eager": Known(1707, 1465, 1198, 0, 509, 49652832, 45647300, 4005532),
    "h200_llama1b_hf_eager": Known(2037, 2034, 2037, 0, 0, 109352999, 5718445, 103634554),
    "mi300x_vllm_decode_graph": Known(434, 425, 14, 1, 0, 10743181, 10717708, 25473),
}
ALL = [*KNOWN, "cpu_only", "a100_triton_small", "legacy_categories"]


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name}.json.gz"


@pytest.mark.parametrize("name", KNOWN)
def test_figures_are_exact(foreign_traces: Path, name: str) -> None:
    report = analysed_once(path_of(foreign_traces, name)).report
    (device,) = report.devices
    found = Known(
        gpu_ops=device.gpu_ops,
        kernels=device.kernels,
        launch_calls=report.launches.calls,
        graph_launches=report.launches.graph_launches,
        unlinked=report.health.unlinked_gpu_ops,
        window_ns=device.window_ns,
        busy_ns=device.busy_ns,
        idle_ns=device.idle_ns,
    )
    assert found == KNOWN[name]
    assert report.health.status == ("degraded" if found.unlinked else "ok")


@pytest.mark.parametrize("name", ALL)
def test_parts_add_up(foreign_traces: Path, name: str) -> None:
    analysis = analysed_once(path_of(foreign_traces, name))
    for device in analysis.report.devices:
        assert sum(total.total_ns for total in device.gaps.values()) == device.idle_ns
        assert device.busy_ns + device.idle_ns == device.window_ns
        waits = sum(total.total_ns for total in device.host_wait.values())
        assert waits == device.gaps["host_wait"].total_ns
    answer = analysis.report.answer
    assert sum(part.ns for part in answer.parts) == answer.whole_ns
    assert answer.step_ns in (None, answer.whole_ns) or not analysis.report.devices


def test_no_gpu_activity(foreign_traces: Path) -> None:
    report = analysed_once(path_of(foreign_traces, "cpu_only")).report
    assert report.health.status == "no_gpu_activity"
    assert report.devices == ()
    assert report.answer.bound == "unknown"


def test_calls_of_every_api_count(foreign_traces: Path) -> None:
    eager = analysed_once(path_of(foreign_traces, "h200_llama1b_hf_eager")).report
    assert eager.launches.by_api == {
        "cudaLaunchKernel": 1596,
        "cuLaunchKernelEx": 387,
        "cudaLaunchKernelExC": 48,
        "cuLaunchKernel": 3,
        "cudaMemsetAsync": 3,
    }
    assert [step.gpu_ops for step in eager.steps] == [679] * 3
    assert eager.answer.bound == "host"
    graph = analysed_once(path_of(foreign_traces, "mi300x_vllm_decode_graph")).report
    assert graph.launches.gpu_ops_per_graph_launch == (421,)
    small = analysed_once(path_of(foreign_traces, "a100_triton_small")).report
    assert small.launches.by_api == {"cuLaunchKernel": 1}
    legacy = analysed_once(path_of(foreign_traces, "legacy_categories")).report
    assert (legacy.launches.calls, legacy.devices[0].kernels) == (4, 4)


@pytest.mark.parametrize("name", ALL)
def test_an_export_reads_back_with_the_same_figures(
    foreign_traces: Path, name: str, tmp_path: Path
) -> None:
    """An export does not hold Python frames."""
    trace = load(path_of(foreign_traces, name))
    analysis = analyze(replace(trace, frames=trace.frames.take(slice(0))))
    exported = tmp_path / "exported.json.gz"
    export_chrome(analysis, exported)
    assert figures(analyze(load(exported)).report) == figures(analysis.report)


def figures(report: Report) -> bytes:
    """All but where the figures came from and what the reader had to say about it."""
    health = msgspec.structs.replace(report.health, findings=())
    return msgspec.json.encode(msgspec.structs.replace(report, source=None, health=health))


def test_two_processes_of_an_nsight_systems_export(foreign_traces: Path) -> None:
    path = foreign_traces / "h100_2gpu_1s.sqlite"
    trace = load(path)
    report = analyze(trace).report
    first = report.devices[0]
    assert (first.window_ns, first.busy_ns, first.idle_ns) == (969447605, 962890247, 6557358)
    assert [(device.gpu_ops, device.kernels) for device in report.devices] == [(2184, 1721)] * 2
    assert report.health.unlinked_gpu_ops == 2276
    (cut,) = [one for one in report.health.findings if one.code == "launches_without_ops"]
    assert cut.message.startswith("1714 of 3346 kernel launches")
    # Most kernels are missing, and the copies fill the window all the same.
    assert report.answer.bound == "copies"
    for op, call in enumerate(trace.ops.launch.tolist()):
        if call >= 0:
            assert trace.calls.correlation[call] == trace.ops.correlation[op]
            assert trace.calls.pid[call] == (111 if trace.ops.device[op] == 0 else 112)
    assert report.ranges[0].path.startswith("FSDP::pre_forward")


def test_the_joins_of_an_nsight_systems_export_are_those_of_sql(foreign_traces: Path) -> None:
    path = foreign_traces / "h100_2gpu_1s.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as connection:
        expected = sum(
            connection.execute(
                f"SELECT count(*) FROM CUPTI_ACTIVITY_KIND_{kind} op "
                "JOIN CUPTI_ACTIVITY_KIND_RUNTIME call ON op.correlationId = call.correlationId "
                "AND op.globalPid / 16777216 = call.globalTid / 16777216"
            ).fetchone()[0]
            for kind in ("KERNEL", "MEMCPY", "MEMSET")
        )
    assert int((load(path).ops.launch >= 0).sum()) == expected


@cache
def document(path: Path) -> Document:
    read = json.loads(gzip.decompress(path.read_bytes()))
    return read if isinstance(read, dict) else {"traceEvents": read}


@given(st.integers(0, 2**64))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_damaged_ones_are_refused_or_add_up(foreign_traces: Path, seed: int) -> None:
    rng = random.Random(seed)
    found = document(path_of(foreign_traces, rng.choice(ALL)))
    at = rng.randrange(max(len(found["traceEvents"]) - 250, 1))
    events = json.loads(json.dumps(found["traceEvents"][at : at + 250]))
    part = {**found, "traceEvents": events}
    data = damage_events(part, rng) if seed % 2 else damage_bytes(as_json(part, rng), rng)
    try:
        trace = read_kineto_bytes(data, "damaged.json")
    except TraceError as error:
        message = str(error)
    else:
        analyzed(trace)
        return
    assert message.startswith("damaged.json: ")
    assert "\n" not in message
