"""Reads SQLite exports of Nsight Systems (`nsys export --type sqlite`) into a `Trace`.

Ids, devices and streams of an export are per process; they are made unique here.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.readers.kernel_times import without_invalid_times
from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.readers.nsys.events import (
    GPU_TABLES,
    ProcessOps,
    all_gpu_ops,
    api_calls,
    nvtx_ranges,
)
from decodescope.analyzer.readers.sqlite_file import SqliteFile
from decodescope.analyzer.readers.trace_columns import (
    MAX_NAME,
    PROCESS_SHIFT,
    Growing,
    Names,
    Shapes,
    overhead_finding,
    own_ids,
    sorted_gpu_ops,
    sorted_host_events,
    usable_base,
)
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GRAPH, GpuOps, HostEvents, Intervals, Trace, grouped

_GPU_NAME_TABLES = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_DEVICE_TABLE = "TARGET_INFO_CUDA_DEVICE"
# CUPTI's overheads of the profiler; the others (a full command buffer, lazy loading) are the
# program's own.
_PROFILER_OVERHEADS = '"overheadType" IN (3, 4, 5)'
_OVERHEAD_TABLE = "CUPTI_ACTIVITY_KIND_OVERHEAD"
_WARNING, _ERROR = 2, 3
# The newest major version of the schema of exports (EXPORT_SCHEMA_VERSION).
_SCHEMA = 3
_VERSION_LENGTH = 40


def own_correlations(gpu: Growing[ProcessOps], calls: Growing[HostEvents]) -> None:
    """Make correlation ids unique across processes.

    An op without a process belongs to the only process of the file; if there are several, to none.
    """
    of_ops, of_calls = np.unique(gpu.rows().pid), np.unique(calls.rows().pid)
    processes = np.union1d(of_ops[of_ops >= 0], of_calls)
    for growing in (gpu, calls):
        events = growing.rows()
        place = np.searchsorted(processes, events.pid)
        if len(processes) > 1:
            place[events.pid < 0] = len(processes)
        growing.change(correlation=own_ids(events.correlation, place))


def own_devices(
    database: NsysDatabase, growing: Growing[ProcessOps], findings: list[Finding]
) -> Growing[GpuOps]:
    """The ops with the GPU's number instead of each process's own device number, and with a
    separate stream for each process that shares a device.

    If the file does not map device numbers to GPUs they stay as they are, with a finding if several
    processes use the same number.
    """
    gpu = growing.rows()
    gpu_of = _gpu_numbers(database)
    used = [
        (int(gpu.pid[rows[0]]), int(gpu.device[rows[0]]))
        for rows in grouped(np.arange(len(gpu)), gpu.pid, gpu.device)
    ]
    moved, stream = gpu.device.copy(), gpu.stream.copy()
    for pid, device in used:
        if (number := gpu_of.get((pid, device))) is not None:
            moved[(gpu.pid == pid) & (gpu.device == device)] = number
    unmapped = Counter(device for pid, device in used if (pid, device) not in gpu_of)
    for device, processes in unmapped.items():
        if processes > 1:
            findings.append(
                Finding(
                    "shared_device",
                    f"{processes} processes call a GPU device {device} and the file does not say "
                    "whether it is one GPU; its figures are those of all of them",
                )
            )
    shared = Counter(device for device, _ in {(gpu_of.get(one, one[1]), one[0]) for one in used})
    for device in (device for device, processes in shared.items() if processes > 1):
        on_device = moved == device
        _, place = np.unique(gpu.pid[on_device], return_inverse=True)
        stream[on_device] += place << PROCESS_SHIFT
    return growing.only(GpuOps).change(device=moved, stream=stream)


def _gpu_numbers(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """(pid, CUDA ordinal) -> GPU, if the file maps it to exactly one."""
    numbers_of: dict[tuple[int, int], set[int]] = {}
    for pid, ordinal, number in database.file.rows(_DEVICE_TABLE, ("pid", "cudaId", "gpuId")):
        if isinstance(pid, int) and isinstance(ordinal, int) and isinstance(number, int):
            numbers_of.setdefault((pid, ordinal), set()).add(number)
    return {key: numbers.pop() for key, numbers in numbers_of.items() if len(numbers) == 1}


def gpu_names(database: NsysDatabase) -> dict[int, str]:
    names: dict[int, str] = {}
    for table in _GPU_NAME_TABLES:
        for number, name in database.file.rows(table, ("id", "name")):
            if isinstance(number, int) and isinstance(name, str):
                names.setdefault(number, name)
    return names


def read_nsys(file: SqliteFile) -> Trace:
    """Read an export.

    Correlation ids are per process in the file; from the second process on, 2**32 per process is
    added to keep them unique. A device is a GPU, even if each process numbers its visible GPUs
    from 0.

    Raises:
        TraceError: it is no export of Nsight Systems.
    """
    database = NsysDatabase(file)
    names, shapes = Names(), Shapes()
    findings: list[Finding] = []
    of_processes = all_gpu_ops(database, names, shapes)
    calls = api_calls(database, names)
    ranges, operators, left_open = nvtx_ranges(database, names)
    findings_of_names = [*names.findings()]
    table, moved = names.take_sorted()
    own_correlations(of_processes, calls)
    gpu = own_devices(database, of_processes, findings)
    # A column is freed once it is sorted.
    del of_processes
    device_names = gpu_names(database)
    whole_graphs = int(np.count_nonzero(gpu.rows().kind == GRAPH))
    findings += _findings(database, left_open, whole_graphs)
    findings += findings_of_names
    base_ns = usable_base(_base_ns(database), findings)
    host_calls = sorted_host_events(calls, moved)
    ops = sorted_gpu_ops(gpu, moved, host_calls, findings)
    ops = without_invalid_times(ops, host_calls, findings)
    return Trace(
        source=Source(path=file.path, format="nsys-sqlite", events=database.rows_read),
        names=table,
        device_names=device_names,
        ops=ops,
        calls=host_calls,
        cpu_ops=sorted_host_events(operators, moved),
        ranges=sorted_host_events(ranges, moved),
        findings=tuple(findings),
        capture=None,
        base_ns=base_ns,
        shapes=shapes.table(),
    )


def _findings(database: NsysDatabase, left_open: int, whole_graphs: int) -> Iterator[Finding]:
    yield from _schema_finding(database)
    if not any(table in database.file.tables for table in GPU_TABLES):
        yield Finding("no_cuda_trace", "the file has no CUDA tables; record with --trace=cuda,nvtx")
    if database.dropped:
        yield Finding(
            "dropped_events",
            f"{database.dropped} events without a usable start or end were left out",
        )
    if left_open:
        yield Finding("open_ended_events", f"{left_open} ranges that never ended are not read")
    if whole_graphs:
        yield Finding(
            "graph_level_trace",
            f"{whole_graphs} graph launches were recorded as one span each: no figures of "
            "their kernels and gaps; record with --cuda-graph-trace=node",
        )
    yield from overhead_finding(_overhead(database))
    messages = [
        " ".join(str(text).split())
        for severity, text in database.file.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if severity in (_WARNING, _ERROR)
    ]
    if messages:
        yield Finding(
            "nsys_diagnostics",
            f"Nsight Systems warned {len(messages)} times: {messages[0][:MAX_NAME]}",
        )
    yield from database.file.findings()


def _schema_finding(database: NsysDatabase) -> Iterator[Finding]:
    own = "\"name\" = 'EXPORT_SCHEMA_VERSION'"
    found = next(database.file.rows("META_DATA_EXPORT", ("name", "value"), own), ("", ""))
    version = str(found[1])[:_VERSION_LENGTH]
    major = version.partition(".")[0]
    if major.isdecimal() and int(major) > _SCHEMA:
        yield Finding(
            "newer_schema",
            f"the export has schema {version}; known are those up to {_SCHEMA}.x, so what newer "
            "ones renamed is missing from the figures",
        )


def _overhead(database: NsysDatabase) -> Intervals:
    """The profiler's own pauses; they do not count as events read."""
    if not database.file.has(_OVERHEAD_TABLE, "overheadType"):
        return Intervals.concatenate(())
    read, dropped = database.rows_read, database.dropped
    parts = database.events(_OVERHEAD_TABLE, (), _PROFILER_OVERHEADS)
    pauses = Growing(Intervals, (Intervals(rows["start_ns"], rows["end_ns"]) for rows in parts))
    database.rows_read, database.dropped = read, dropped
    return pauses.rows()


def _base_ns(database: NsysDatabase) -> int:
    began = _first(database, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    if began is None:
        return 0
    at = _first(database, "ANALYSIS_DETAILS", "startTime")
    if at is None:
        at = _first(database, "TARGET_INFO_SESSION_START_TIME", "systemClockNs") or 0
    return began - at


def _first(database: NsysDatabase, table: str, column: str) -> int | None:
    for (value,) in database.file.rows(table, (column,)):
        if isinstance(value, int):
            return value
    return None
