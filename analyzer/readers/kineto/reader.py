"""Reads Chrome traces as torch.profiler (Kineto) writes them into a `Trace`."""

import re
from typing import BinaryIO

import msgspec
import numpy as np

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource, bytes_stream, open_stream
from decodescope.analyzer.readers.kineto.columns import ColumnGroup, EventColumns
from decodescope.analyzer.readers.kineto.cpu_leaves import leaf_operators
from decodescope.analyzer.readers.kineto.lead_steps import without_lead
from decodescope.analyzer.readers.kineto.operator_work import stored_work
from decodescope.analyzer.readers.kineto.stream import EventStream
from decodescope.analyzer.readers.sorted_columns import sorted_gpu_ops, sorted_host_events
from decodescope.analyzer.reference import reference_of
from decodescope.analyzer.schema.report import CaptureInfo, Finding, Source
from decodescope.analyzer.trace import CPU_DEVICE, HostEvents, Int32s, Int64s, Trace

CAPTURE_KEY = "decodescope"
_MAX_RANKS = 1 << 24
_PROFILER_STEP = re.compile(r"ProfilerStep\s*#\s*\d+$")


def read_kineto(path: str) -> Trace:
    """Read a .json or .json.gz trace. Raises `TraceError` if the file holds none."""
    with open_stream(path) as stream:
        return _read(stream, path)


def read_kineto_bytes(data: bytes, path: str) -> Trace:
    """Read a trace from bytes (JSON, or gzip of it); `path` names it in errors and in the source.

    Raises `TraceError` if the bytes hold no trace.
    """
    return _read(bytes_stream(data), path)


def _read(stream: BinaryIO, path: str) -> Trace:
    columns = EventColumns()
    try:
        events = EventStream(ByteSource(stream, path))
        for batch in events.batches():
            columns.add(batch)
    except OSError as error:
        raise TraceError(f"{path}: reading failed ({error}); check the file") from error
    if not columns.events and (events.truncated or events.broken_at is not None):
        raise TraceError(f"{path}: broken off before its first whole event; record it again")
    if columns.events + events.skipped > 0 and columns.with_phase == 0:
        raise TraceError(f"{path}: JSON whose list holds no trace events; give a Chrome trace")
    return _assemble(columns, events, path)


def _assemble(columns: EventColumns, events: EventStream, path: str) -> Trace:
    findings = _reader_findings(columns, events)
    capture = _capture(events.metadata, findings)
    reference = reference_of(events.metadata, findings)
    stored = stored_work(events.metadata, findings)
    names, moved = columns.names.sorted_table()
    calls = sorted_host_events(_renamed(columns.calls, moved))
    cpu_ops = sorted_host_events(_renamed(columns.cpu_ops, moved))
    ranges = sorted_host_events(_renamed(columns.ranges, moved))
    cpu_ops, ranges = _promote_profiler_steps(cpu_ops, ranges, names)
    if capture is not None and capture.device == "cpu" and not columns.gpu.column("start_ns").size:
        ops = leaf_operators(cpu_ops, names)
    else:
        gpu = _renamed(columns.gpu, moved)
        gpu["external_id"] = _operator_ids(gpu["external_id"], gpu["correlation"])
        ops = sorted_gpu_ops(gpu, calls, findings)
    base = events.metadata.get("baseTimeNanoseconds")
    trace = Trace(
        source=Source(path=path, format="kineto", events=columns.events),
        names=names,
        device_names=_device_names(events.metadata, capture),
        ops=ops,
        calls=calls,
        cpu_ops=cpu_ops,
        ranges=ranges,
        findings=tuple(findings),
        capture=capture,
        base_ns=base if isinstance(base, int) else 0,
        reference=reference,
        work=columns.work.work() if stored is None else stored,
        rank=_rank(events.metadata),
    )
    return without_lead(trace)


def _reader_findings(columns: EventColumns, events: EventStream) -> list[Finding]:
    findings = []
    if events.truncated:
        findings.append(
            Finding("truncated", f"the file ends early; its {columns.events} whole events are used")
        )
    if events.broken_at is not None:
        findings.append(
            Finding(
                "broken_json",
                f"no JSON from byte {events.broken_at} on; "
                f"the {columns.events} events before it are used",
            )
        )
    if columns.dropped:
        findings.append(
            Finding(
                "dropped_events",
                f"{columns.dropped} events without a usable start or duration were left out",
            )
        )
    if events.skipped:
        findings.append(
            Finding("no_events", f"{events.skipped} entries of the event list are no events")
        )
    if columns.open_ended:
        findings.append(
            Finding("open_ended_events", f"{columns.open_ended} begin/end pairs are not read")
        )
    if columns.overhead_events:
        findings.append(
            Finding(
                "profiler_overhead",
                f"the profiler reports {columns.overhead_events} pauses of its own, "
                f"{columns.overhead_ns / 1e6:.3f} ms in all",
            )
        )
    return findings


def _capture(metadata: dict[str, object], findings: list[Finding]) -> CaptureInfo | None:
    if CAPTURE_KEY not in metadata:
        return None
    try:
        return msgspec.convert(metadata[CAPTURE_KEY], CaptureInfo)
    except msgspec.ValidationError as error:
        findings.append(
            Finding(
                "bad_capture_info", f"the decodescope block is unreadable and ignored ({error})"
            )
        )
        return None


def _device_names(metadata: dict[str, object], capture: CaptureInfo | None) -> dict[int, str]:
    names: dict[int, str] = {}
    properties = metadata.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("id"), int):
            names[entry["id"]] = str(entry.get("name") or "")
    if capture is not None and capture.device == "cpu":
        names[CPU_DEVICE] = capture.device_name
    return names


def _rank(metadata: dict[str, object]) -> int | None:
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return rank if isinstance(rank, int) and 0 <= rank < _MAX_RANKS else None


def _renamed(group: ColumnGroup, moved: Int32s) -> dict[str, np.ndarray]:
    return {**group.columns(), "name": moved[group.column("name")]}


def _operator_ids(external_id: Int64s, correlation: Int64s) -> Int64s:
    """Old versions wrote an op's correlation id as its external id too: that names no operator."""
    given = external_id > 0
    if given.any() and (external_id[given] == correlation[given]).all():
        return np.full_like(external_id, -1)
    return external_id


def _promote_profiler_steps(
    cpu_ops: HostEvents, ranges: HostEvents, names: tuple[str, ...]
) -> tuple[HostEvents, HostEvents]:
    """Old files list the profiler's step markers among the operators: move them to the ranges."""
    markers = [index for index, name in enumerate(names) if _PROFILER_STEP.match(name)]
    moving = np.isin(cpu_ops.name, markers)
    if not moving.any():
        return cpu_ops, ranges
    joined = {
        field: np.concatenate((getattr(ranges, field), getattr(cpu_ops, field)[moving]))
        for field in HostEvents.__slots__
    }
    order = np.lexsort((-joined["end_ns"], joined["start_ns"]))
    stay = {field: getattr(cpu_ops, field)[~moving] for field in HostEvents.__slots__}
    return HostEvents(**stay), HostEvents(**{name: c[order] for name, c in joined.items()})
