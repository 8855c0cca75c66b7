"""Reads Chrome traces written by torch.profiler (Kineto), or by Proton, into a `Trace`."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Any, TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kernel_times import without_invalid_times, without_lone_copies
from decodescope.analyzer.readers.kineto.devices import leaf_operators, name_by_properties
from decodescope.analyzer.readers.kineto.event import Event
from decodescope.analyzer.readers.kineto.event_columns import EventColumns
from decodescope.analyzer.readers.kineto.operator_work import WORK_KEY, WorkRows, stored_work
from decodescope.analyzer.readers.kineto.stream import EventStream
from decodescope.analyzer.readers.trace_columns import (
    Growing,
    overhead_finding,
    sorted_gpu_ops,
    sorted_host_events,
    usable_base,
)
from decodescope.analyzer.schema.graph_reference import CAPTURE_KEY, REFERENCE_KEY, GraphReference
from decodescope.analyzer.schema.report import CaptureInfo, Finding, Source
from decodescope.analyzer.text.numbers import is_integer
from decodescope.analyzer.timing.steps import step_markers
from decodescope.analyzer.trace import CPU_DEVICE, GpuOps, HostEvents, Trace

_MAX_RANKS = 1 << 24
_PROFILER_STEP = re.compile(r"ProfilerStep\s*#\s*\d+$")
_Stored = TypeVar("_Stored")
RELEVANT_SHARE = 0.05
_LISTED = 4
_NAME_LENGTH, _LOG_LENGTH = 60, 200
# The range profiler of CUPTI replays kernels to count events; Kineto writes the window divided by
# the number of kernels as the duration of each (CuptiRangeProfiler.cpp).
_COUNTED = "cuda_profiler_range"
_ACCELERATORS = {"mtia_": "MTIA", "hpu_": "Gaudi", "glow_": "Glow"}


def read_kineto(source: ByteSource) -> Trace:
    """Read a trace from JSON. Raises `TraceError` if it is none."""
    columns = EventColumns()
    events = EventStream(source)
    for batch in events.batches():
        columns.add(_of_proton(batch) if events.of_proton else batch)
    columns.pairs.finish()
    if not columns.events and events.stopped:
        raise TraceError(f"{source.path}: {events.stopped}, no event before; give a Chrome trace")
    if not columns.events and (events.truncated or events.broken_at is not None):
        raise TraceError(f"{source.path}: ends before its first complete event; record it again")
    if columns.events + events.skipped > 0 and columns.with_phase == 0:
        raise TraceError(
            f"{source.path}: JSON with no trace events in its list; give a Chrome trace"
        )
    return _assemble(columns, events, source)


def _of_proton(batch: list[Event]) -> list[Event]:
    # Few traces are Proton's; the others do without this module.
    from decodescope.analyzer.readers.kineto.proton import as_kineto

    return as_kineto(batch)


def read_kineto_bytes(data: bytes, path: str) -> Trace:
    """Read a trace from bytes (JSON, or gzip of it); `path` names it in errors and in the source.

    Raises `TraceError` if the bytes hold no trace.
    """
    return read_kineto(ByteSource(BytesIO(data), path))


def _assemble(columns: EventColumns, events: EventStream, source: ByteSource) -> Trace:
    findings = [*_reader_findings(columns, events), *columns.names.findings()]

    def stored(key: str, kind: type[_Stored], code: str, title: str) -> _Stored | None:
        """The value that decodescope wrote under `key`; a finding if it is unreadable."""
        if key not in events.metadata:
            return None
        try:
            return msgspec.convert(events.metadata[key], kind)
        except msgspec.ValidationError as error:
            findings.append(Finding(code, f"{title} is unreadable and ignored ({error})"))
            return None

    capture = stored(CAPTURE_KEY, CaptureInfo, "bad_capture_info", "the decodescope block")
    title = "the reference of the graph replays"
    reference = stored(REFERENCE_KEY, GraphReference, "bad_reference", title)
    if reference is None:
        reference = columns.annotations.reference()
    rows = stored(WORK_KEY, WorkRows, "bad_operator_work", "the operators' work")
    names, moved = columns.names.take_sorted()
    host: dict[str, Any] = {
        name: sorted_host_events(group, moved) for name, group in columns.host.items()
    }
    host |= _promoted_profiler_steps(host["cpu_ops"], host["ranges"], names)
    if capture is not None and capture.device == "cpu" and not len(columns.gpu):
        ops = leaf_operators(host["cpu_ops"], host["ranges"], names)
    else:
        ops = sorted_gpu_ops(_without_copied_ids(columns.gpu), moved, host["calls"], findings)
        ops = without_invalid_times(ops, host["calls"], findings)
    base_ns = usable_base(events.metadata.get("baseTimeNanoseconds"), findings)
    trace = Trace(
        source=Source(path=source.path, format="kineto", events=columns.events),
        names=names,
        device_names=_device_names(events.metadata, capture, ops),
        ops=ops,
        **host,
        findings=tuple(findings),
        capture=capture,
        base_ns=base_ns,
        reference=reference,
        work=columns.work.work() if rows is None else stored_work(rows),
        rank=_rank(events.metadata),
        shapes=columns.shapes.table(),
        call_kernels=columns.kernels.table(moved),
        messages=columns.messages.rows(),
        message_table=tuple(columns.messages.table),
    )
    trace = _without_lead(trace)
    return trace if trace.on_cpu else without_lone_copies(trace)


def _without_lead(trace: Trace) -> Trace:
    """The trace without what its capture's lead steps issued; any other trace unchanged.

    The first recorded step follows a synchronisation, so the device waits for the host as it never
    does in steady decoding. Our captures therefore begin with steps that have no marker
    (`CaptureInfo.lead_steps`), and no figure counts them. This drops the GPU ops whose launch call
    (whose start, if the call is unknown) precedes the first marker, and every API call, operator,
    range and frame that began before it. So device windows begin with the first op of the first
    marked step.
    """
    if trace.capture is None or not trace.capture.lead_steps:
        return trace
    markers = step_markers(trace)
    if not len(markers):
        return trace
    first_ns = int(trace.ranges.start_ns[markers[0]])
    issued_ns = trace.ops.start_ns.copy()
    linked = trace.ops.launch >= 0
    issued_ns[linked] = trace.calls.start_ns[trace.ops.launch[linked]]
    kept_calls = trace.calls.start_ns >= first_ns
    ops = trace.ops.take(issued_ns >= first_ns)
    linked = ops.launch >= 0
    ops.launch[linked] = (np.cumsum(kept_calls) - 1)[ops.launch[linked]]
    return replace(
        trace,
        ops=ops,
        calls=trace.calls.take(kept_calls),
        cpu_ops=trace.cpu_ops.take(trace.cpu_ops.start_ns >= first_ns),
        ranges=trace.ranges.take(trace.ranges.start_ns >= first_ns),
        frames=trace.frames.take(trace.frames.start_ns >= first_ns),
        overhead=trace.overhead.take(trace.overhead.end_ns >= first_ns),
    )


def _reader_findings(columns: EventColumns, events: EventStream) -> Iterator[Finding]:
    used = f"the {columns.events} events before it are used"
    if events.truncated:
        message = f"the file ends early; its {columns.events} whole events are used"
        yield Finding("truncated", message)
    if events.broken_at is not None:
        yield Finding("broken_json", f"no JSON from byte {events.broken_at} on; {used}")
    if events.stopped:
        place = f"{events.stopped} at byte {events.stopped_at}"
        yield Finding("cut_trace", f"{place}, as no profiler writes; {used}")
    if events.trailing_bytes:
        size = f"{events.trailing_bytes:,} bytes"
        message = f"{size} that are no JSON follow the trace, and are not read"
        if events.trailing_document:
            message = f"another JSON document, of {size} with all that follows, is not read; "
            message += "put each document into a file of its own"
        yield Finding("trailing_data", message)
    if columns.dropped:
        yield Finding(
            "dropped_events",
            f"{columns.dropped} events without a usable start or duration were left out",
        )
    if events.skipped:
        yield Finding("no_events", f"{events.skipped} entries of the event list are no events")
    yield from unread_findings(columns, events.metadata)
    yield from overhead_finding(columns.host["overhead"].rows())


def _device_names(
    metadata: dict[str, object], capture: CaptureInfo | None, ops: GpuOps
) -> dict[int, str]:
    """The name of each device. The ordinals of ROCm's tracer may not be those of the listed
    devices; if all of these have one name, so has any other."""
    names: dict[int, str] = {}
    properties = metadata.get("deviceProperties")
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and is_integer(entry.get("id")):
            names[entry["id"]] = str(entry.get("name") or name_by_properties(entry))
    if len(set(names.values())) == 1:
        (name,) = set(names.values())
        names |= {device: name for device in np.unique(ops.device).tolist() if device >= 0}
    if capture is not None and capture.device == "cpu":
        names[CPU_DEVICE] = capture.device_name
    return names


def _rank(metadata: dict[str, object]) -> int | None:
    distributed = metadata.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    return rank if is_integer(rank) and 0 <= rank < _MAX_RANKS else None


def _without_copied_ids(growing: Growing[GpuOps]) -> Growing[GpuOps]:
    """Drop external ids that are copies of correlation ids, as old versions wrote them: they name
    no operators."""
    gpu = growing.rows()
    known = gpu.external_id > 0
    if known.any() and (gpu.external_id[known] == gpu.correlation[known]).all():
        return growing.change(external_id=np.full_like(gpu.external_id, -1))
    return growing


def _promoted_profiler_steps(
    cpu_ops: HostEvents, ranges: HostEvents, names: tuple[str, ...]
) -> dict[str, HostEvents]:
    """Both with the profiler's step markers among the ranges; old files list them among the
    operators."""
    markers = [index for index, name in enumerate(names) if _PROFILER_STEP.match(name)]
    moving = np.isin(cpu_ops.name, markers)
    if not moving.any():
        return {}
    joined = HostEvents.concatenate((ranges, cpu_ops.take(moving)))
    order = np.lexsort((-joined.end_ns, joined.start_ns))
    return {"cpu_ops": cpu_ops.take(~moving), "ranges": joined.take(order)}


def unread_findings(columns: EventColumns, metadata: Mapping[str, object]) -> Iterator[Finding]:
    """(code, message) of each finding: events that never end or begin, kernels that were counted
    and not timed, what is not understood, and errors that the profiler logged.

    What is not understood are categories, where they are `RELEVANT_SHARE` of the timed events or no
    GPU op is understood; phases, if nothing is timed.
    """
    pairs, unknown = columns.pairs, Counter(columns.unknown)
    if not columns.timed:
        phases = columns.phases.items()
        unknown = Counter({f"phase {phase}": n for phase, n in phases if phase not in ("", "M")})
    if pairs.unclosed or pairs.unopened:
        yield Finding(
            "open_ended_events",
            f"{pairs.unclosed:,} events begin and never end, {pairs.unopened:,} ends have no "
            "begin; they were left out",
        )
    if counted := unknown.pop(_COUNTED, 0):
        yield Finding(
            "counted_kernels",
            f"{counted:,} kernels were counted by hardware counters, not timed: their durations in "
            f"the file ({_COUNTED}) are made up and not read; record without profiler_metrics to "
            "time them",
        )
    if unknown and (not len(columns.gpu) or unknown.total() >= RELEVANT_SHARE * columns.timed):
        yield Finding("not_understood", f"not understood and in no figure: {_listed(unknown)}")
    errors = metadata.get("ERROR")
    if isinstance(errors, list) and errors:
        first = _cut(str(errors[0]), _LOG_LENGTH)
        yield Finding(
            "profiler_errors",
            f"the profiler logged {len(errors)} error{'s' * (len(errors) > 1)}: {first}",
        )


def _cut(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[:length]}…"


def _listed(unknown: Counter[str]) -> str:
    largest = unknown.most_common()
    parts = [f"{n:,} events of {_cut(name, _NAME_LENGTH)}" for name, n in largest[:_LISTED]]
    if more := largest[_LISTED:]:
        rest = sum(number for _, number in more)
        parts.append(f"{rest:,} of {len(more)} more categories")
    accelerators = _ACCELERATORS.items()
    owners = {name for start, name in accelerators for text in unknown if text.startswith(start)}
    whose = f" (of the accelerator {' and '.join(sorted(owners))})" if owners else ""
    return f"{', '.join(parts)}{whose}; the devices read are those of CUDA, ROCm and XPU"
