"""Reads SQLite exports of Nsight Systems (`nsys export --type sqlite`) into a `Trace`."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.columns import (
    Names,
    Shapes,
    sorted_gpu_ops,
    sorted_host_events,
    usable_base,
)
from decodescope.analyzer.readers.nsys.database import SQLITE_ERRORS, NsysDatabase
from decodescope.analyzer.readers.nsys.gpu_ops import GPU_TABLES, gpu_ops
from decodescope.analyzer.readers.nsys.host_events import api_calls, nvtx_ranges, process_of
from decodescope.analyzer.readers.nsys.processes import gpu_names, own_devices, own_ids
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GRAPH, Trace

# CUPTI's overheads of the profiler; the others (a full command buffer, lazy loading) are the
# program's own.
_PROFILER_OVERHEADS = '"overheadType" IN (3, 4, 5)'
_OVERHEAD_TABLE = "CUPTI_ACTIVITY_KIND_OVERHEAD"
_WARNING, _ERROR = 2, 3


def read_nsys(source: ByteSource) -> Trace:
    """Read an export.

    Correlation ids are per process in the file; from the second process on, 2**32 per process is
    added to keep them unique. A device is a GPU, even if each process numbers its visible GPUs
    from 0.

    Raises:
        TraceError: the file is locked, damaged, cut short, or no export of Nsight Systems.
    """
    with closing(NsysDatabase(source)) as database:
        try:
            return _trace(database)
        except SQLITE_ERRORS as error:
            raise database.unreadable(error) from None


def refuse_nsys_report(source: ByteSource) -> Trace:
    """Raise `TraceError`: only Nsight Systems reads its reports."""
    raise TraceError(
        f"{source.path}: a report that only Nsight Systems reads; export it with "
        "nsys export --type sqlite and open that"
    )


def _trace(database: NsysDatabase) -> Trace:
    names, shapes = Names(), Shapes()
    findings: list[Finding] = []
    gpu, global_pid = gpu_ops(database, names, shapes)
    calls = api_calls(database, names)
    ranges, operators, left_open = nvtx_ranges(database, names)
    gpu_pid = process_of(global_pid)
    gpu, calls = own_ids(gpu, gpu_pid, calls)
    gpu = own_devices(database, gpu, gpu_pid, findings)
    whole_graphs = int(np.count_nonzero(gpu.kind == GRAPH))
    findings += (Finding(*found) for found in _findings(database, left_open, whole_graphs))
    findings += names.findings()
    base_ns = usable_base(_base_ns(database), findings)
    table, moved = names.sorted_table()
    host_calls = sorted_host_events((calls,), moved)
    return Trace(
        source=Source(path=database.path, format="nsys-sqlite", events=database.rows_read),
        names=table,
        device_names=gpu_names(database),
        ops=sorted_gpu_ops(gpu, moved, host_calls, findings),
        calls=host_calls,
        cpu_ops=sorted_host_events((operators,), moved),
        ranges=sorted_host_events((ranges,), moved),
        findings=tuple(findings),
        capture=None,
        base_ns=base_ns,
        shapes=shapes.table(),
    )


def _findings(
    database: NsysDatabase, left_open: int, whole_graphs: int
) -> Iterator[tuple[str, str]]:
    if not any(table in database.tables for table in GPU_TABLES):
        yield "no_cuda_trace", "the file has no CUDA tables; record with --trace=cuda,nvtx"
    if database.dropped:
        yield (
            "dropped_events",
            f"{database.dropped} events without a usable start or end were left out",
        )
    if left_open:
        yield "open_ended_events", f"{left_open} ranges that never ended are not read"
    if whole_graphs:
        yield (
            "graph_level_trace",
            f"{whole_graphs} graph launches were recorded as one span each: no figures of "
            "their kernels and gaps; record with --cuda-graph-trace=node",
        )
    pauses, total_ns = _overhead(database)
    if pauses:
        yield (
            "profiler_overhead",
            f"the profiler reports {pauses} pauses of its own, {total_ns / 1e6:.3f} ms in all",
        )
    messages = [
        " ".join(str(text).split())
        for severity, text in database.rows("DIAGNOSTIC_EVENT", ("severity", "text"))
        if severity in (_WARNING, _ERROR)
    ]
    if messages:
        yield "nsys_diagnostics", f"Nsight Systems warned {len(messages)} times: {messages[0]}"


def _overhead(database: NsysDatabase) -> tuple[int, int]:
    """Number and total time of the profiler's own pauses; they do not count as events read."""
    if not database.has(_OVERHEAD_TABLE, "overheadType"):
        return 0, 0
    read, dropped = database.rows_read, database.dropped
    rows = database.events(_OVERHEAD_TABLE, (), _PROFILER_OVERHEADS)
    database.rows_read, database.dropped = read, dropped
    return len(rows["start_ns"]), int((rows["end_ns"] - rows["start_ns"]).sum())


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
