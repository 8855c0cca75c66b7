"""Reads SQLite exports of Nsight Systems (`nsys export --type sqlite`) into a `Trace`."""

import numpy as np

from decodescope.analyzer.readers.kineto.columns import Names
from decodescope.analyzer.readers.nsys.database import SQLITE_ERRORS, NsysDatabase
from decodescope.analyzer.readers.nsys.gpu_ops import GPU_TABLES, gpu_columns
from decodescope.analyzer.readers.nsys.host_events import call_columns, process_of, range_columns
from decodescope.analyzer.readers.nsys.processes import own_devices, own_ids, own_streams
from decodescope.analyzer.readers.sorted_columns import sorted_gpu_ops, sorted_host_events
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GRAPH, Trace

# CUPTI's overheads of the profiler itself; the others (a full command buffer, lazy loading) are the
# program's own.
_PROFILER_OVERHEADS = '"overheadType" IN (3, 4, 5)'
_OVERHEAD_TABLE = "CUPTI_ACTIVITY_KIND_OVERHEAD"
_WARNING, _ERROR = 2, 3


def read_nsys(path: str) -> Trace:
    """Read an export.

    Correlation ids are per process in the file; from the second process on they are raised by
    2**32 per process, so that they stay unique. A device is the GPU, also where each process
    counts its visible GPUs from 0.

    Raises:
        TraceError: the file is locked, damaged, cut short, or no export of Nsight Systems.
    """
    with NsysDatabase(path) as database:
        try:
            return _trace(database)
        except SQLITE_ERRORS as error:
            raise database.unreadable(error) from None


def _trace(database: NsysDatabase) -> Trace:
    names = Names()
    findings: list[Finding] = []
    gpu = gpu_columns(database, names)
    calls = call_columns(database, names)
    ranges, operators, left_open = range_columns(database, names)
    gpu_pid = process_of(gpu.pop("global_pid"))
    own_ids(gpu, gpu_pid, calls)
    device_names = own_devices(database, gpu, gpu_pid, findings)
    own_streams(gpu, gpu_pid)
    findings += _findings(database, left_open, int(np.count_nonzero(gpu["kind"] == GRAPH)))
    table, moved = names.sorted_table()
    for columns in (gpu, calls, ranges, operators):
        columns["name"] = moved[columns["name"]].astype(np.int64)
    host_calls = sorted_host_events(calls)
    return Trace(
        source=Source(path=database.path, format="nsys-sqlite", events=database.rows_read),
        names=table,
        device_names=device_names,
        ops=sorted_gpu_ops(gpu, host_calls, findings),
        calls=host_calls,
        cpu_ops=sorted_host_events(operators),
        ranges=sorted_host_events(ranges),
        findings=tuple(findings),
        capture=None,
        base_ns=_base_ns(database),
    )


def _findings(database: NsysDatabase, left_open: int, whole_graphs: int) -> list[Finding]:
    findings = []
    if not any(table in database.tables for table in GPU_TABLES):
        findings.append(
            Finding("no_cuda_trace", "the file has no CUDA tables; record with --trace=cuda,nvtx")
        )
    if database.dropped:
        findings.append(
            Finding(
                "dropped_events",
                f"{database.dropped} events without a usable start or end were left out",
            )
        )
    if left_open:
        findings.append(
            Finding("open_ended_events", f"{left_open} ranges that never ended are not read")
        )
    if whole_graphs:
        findings.append(
            Finding(
                "graph_level_trace",
                f"{whole_graphs} graph launches were recorded as one span each: no figures of "
                "their kernels and gaps; record with --cuda-graph-trace=node",
            )
        )
    return [*findings, *_overhead(database), *_diagnostics(database)]


def _overhead(database: NsysDatabase) -> list[Finding]:
    if not database.has(_OVERHEAD_TABLE, "overheadType"):
        return []
    read, dropped = database.rows_read, database.dropped
    rows = database.events(_OVERHEAD_TABLE, (), _PROFILER_OVERHEADS)
    database.rows_read, database.dropped = read, dropped
    total_ns = int((rows["end_ns"] - rows["start_ns"]).sum())
    count = len(rows["start_ns"])
    if not count:
        return []
    return [
        Finding(
            "profiler_overhead",
            f"the profiler reports {count} pauses of its own, {total_ns / 1e6:.3f} ms in all",
        )
    ]


def _diagnostics(database: NsysDatabase) -> list[Finding]:
    messages = [
        " ".join(str(text).split())
        for severity, text in database.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if severity in (_WARNING, _ERROR)
    ]
    if not messages:
        return []
    return [
        Finding("nsys_diagnostics", f"Nsight Systems warned {len(messages)} times: {messages[0]}")
    ]


def _base_ns(database: NsysDatabase) -> int:
    """The wall clock at the file's time 0."""
    began = _first(database, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    if began is None:
        return 0
    at = _first(database, "ANALYSIS_DETAILS", "startTime")
    if at is None:
        at = _first(database, "TARGET_INFO_SESSION_START_TIME", "systemClockNs") or 0
    return began - at


def _first(database: NsysDatabase, table: str, column: str) -> int | None:
    for (value,) in database.rows(table, (column,)):
        if isinstance(value, int):
            return value
    return None
