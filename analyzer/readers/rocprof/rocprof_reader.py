"""Reads the JSON of rocprofv3 (`--output-format json`) into a `Trace`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, compress
from typing import TypeVar

import numpy as np
from msgspec.structs import astuple

from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.rocprof.document import (
    ApiCall,
    Copy,
    Devices,
    Dispatch,
    DispatchInfo,
    KernelSymbol,
    Process,
    Record,
    Strings,
    read_processes,
)
from decodescope.analyzer.readers.trace_columns import (
    LIMIT_NS,
    NOT_GIVEN,
    Growing,
    Names,
    Shapes,
    gpu_ops,
    host_events,
    last_before,
    own_ids,
    sorted_gpu_ops,
    sorted_host_events,
)
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import KERNEL, MEMCPY, GpuOps, HostEvents, Int64s, Trace, rows_in

_MARK = "roctxMark"
_Record = TypeVar("_Record", bound=Record)


class ProcessColumns:
    """`gpu`, `calls` and `ranges` of a process, and the names of its `devices`.

    Ids and streams are raised by `place` * 2**32, so that they are unique among processes. An op
    belongs to the innermost call around its launch. An HSA call inside a HIP call is part of that,
    so the op goes to the HIP call. `dropped` counts records without a usable start or end,
    `host_copies` copies that no GPU is part of; neither are in the columns.
    """

    def __init__(self, process: Process, names: Names, shapes: Shapes, place: int) -> None:
        self.dropped = 0
        self.host_copies = 0
        self._names = names
        self._shapes = shapes
        self._place = place
        self._pid = process.metadata.pid
        self.devices = Devices(process.agents)
        records = process.buffer_records
        kernels, copies = records.kernel_dispatch, records.memory_copy
        streams = chain((op.stream_id for op in kernels), (copy.stream_id for copy in copies))
        self._by_stream = any(stream.handle for stream in streams)
        gpu = GpuOps.concatenate((self._kernels(kernels, process), self._copies(copies)))
        hip = self._calls(records.hip_api, process.strings)
        hsa = self._calls(records.hsa_api, process.strings)
        inside = _enclosing(hsa, hip)
        self.calls = HostEvents.concatenate((hip, hsa.take(inside < 0)))
        self.gpu = _launched_by(gpu, hsa.take(inside >= 0), hip.take(inside[inside >= 0]))
        self.ranges = self._ranges(records.marker_api, process.strings)

    def _kernels(self, records: Sequence[Dispatch], process: Process) -> GpuOps:
        kept, start_ns, end_ns = self._usable(records)
        symbols = {symbol.kernel_id: symbol for symbol in process.kernel_symbols}
        infos = [record.dispatch_info for record in kept]
        queues = (
            record.stream_id if self._by_stream else record.dispatch_info.queue_id
            for record in kept
        )
        shapes = [self._shape(info, symbols.get(info.kernel_id)) for info in infos]
        return gpu_ops(
            KERNEL,
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index([_kernel_name(symbols.get(info.kernel_id)) for info in infos]),
            device=_integers([self.devices.number(info.agent_id.handle) for info in infos]),
            stream=self._own([queue.handle for queue in queues], 0),
            correlation=self._own(_ids(kept), 1),
            shape=np.array(shapes, dtype=np.int32),
        )

    def _shape(self, info: DispatchInfo, symbol: KernelSymbol | None) -> int:
        """The number of the launch shape; rocprofv3 counts the work-items of a grid."""
        grid, block = astuple(info.grid_size), astuple(info.workgroup_size)
        registers = symbol.arch_vgpr_count if symbol else None
        return self._shapes.of(
            [
                -(-threads // size) if size > 0 else 0
                for threads, size in zip(grid, block, strict=True)
            ],
            block,
            registers + symbol.accum_vgpr_count if symbol and registers is not None else None,
            info.group_segment_size,
        )

    def _copies(self, records: Sequence[Copy]) -> GpuOps:
        is_gpu = self.devices.is_gpu
        of_gpus = [record for record in records if any(map(is_gpu, _ends(record)))]
        self.host_copies += len(records) - len(of_gpus)
        kept, start_ns, end_ns = self._usable(of_gpus)
        streams = [record.stream_id.handle if self._by_stream else NOT_GIVEN for record in kept]
        gpus = [next(filter(is_gpu, _ends(record))) for record in kept]
        return gpu_ops(
            MEMCPY,
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index([f"Memcpy {self.devices.way(*_ends(copy))}" for copy in kept]),
            device=_integers([self.devices.number(gpu) for gpu in gpus]),
            stream=self._own(streams, 0),
            correlation=self._own(_ids(kept), 1),
        )

    def _calls(self, records: Sequence[ApiCall], strings: Strings) -> HostEvents:
        calls = self._host_events(records, lambda call: _operation(call, strings))
        return replace(calls, correlation=own_ids(calls.correlation, self._place))

    def _ranges(self, records: Sequence[ApiCall], strings: Strings) -> HostEvents:
        texts = {entry.key: entry.value for entry in strings.marker_api}
        ranges = [
            marker
            for marker in records
            if marker.correlation_id.internal in texts
            and not (_operation(marker, strings) or "").startswith(_MARK)
        ]
        events = self._host_events(ranges, lambda marker: texts[marker.correlation_id.internal])
        return replace(events, correlation=np.full_like(events.correlation, NOT_GIVEN))

    def _host_events(
        self, records: Sequence[ApiCall], text_of: Callable[[ApiCall], str | None]
    ) -> HostEvents:
        """The usable records as events; `correlation` is the document's own."""
        kept, start_ns, end_ns = self._usable(records)
        return host_events(
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index([text_of(record) for record in kept]),
            pid=_integers([self._pid] * len(kept)),
            tid=_integers([record.thread_id for record in kept]),
            correlation=_integers(_ids(kept)),
        )

    def _usable(self, records: Sequence[_Record]) -> tuple[list[_Record], Int64s, Int64s]:
        start_ns = _integers([record.start_timestamp for record in records])
        end_ns = _integers([record.end_timestamp for record in records])
        usable = (start_ns > 0) & (start_ns <= end_ns) & (end_ns <= LIMIT_NS)
        self.dropped += int(np.count_nonzero(~usable))
        kept = list(compress(records, usable.tolist()))
        return kept, start_ns[usable], end_ns[usable]

    def _own(self, numbers: Sequence[int], least: int) -> Int64s:
        return own_ids(_integers(numbers), self._place, least)


def _ids(records: Sequence[Record]) -> list[int]:
    return [record.correlation_id.internal for record in records]


def _ends(copy: Copy) -> tuple[int, int]:
    """The agents that a copy reads from and writes to."""
    return copy.src_agent_id.handle, copy.dst_agent_id.handle


def _kernel_name(symbol: KernelSymbol | None) -> str | None:
    if symbol is None:
        return None
    return symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name


def _operation(call: ApiCall, strings: Strings) -> str | None:
    kinds = strings.buffer_records
    names = kinds[call.kind].operations if 0 <= call.kind < len(kinds) else []
    return names[call.operation] if 0 <= call.operation < len(names) else None


def _integers(values: Sequence[int]) -> Int64s:
    """The values as int64, -1 for those beyond it."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([v if abs(v) < 2**62 else NOT_GIVEN for v in values], dtype=np.int64)


def _enclosing(inner: HostEvents, outer: HostEvents) -> Int64s:
    """For each inner call the outer one of its thread that it lies in (the last to begin before
    it), else -1."""
    enclosing = np.full(len(inner), -1, dtype=np.int64)
    rows = np.flatnonzero(np.isin(inner.tid, outer.tid))
    if not len(rows):
        return enclosing
    order = np.lexsort((outer.start_ns, outer.tid))
    last = last_before(inner.start_ns[rows], inner.tid[rows], outer, order, outer.tid[order])
    began = outer.start_ns[last] <= inner.start_ns[rows]
    inside = began & (outer.end_ns[last] >= inner.end_ns[rows])
    enclosing[rows[inside]] = last[inside]
    return enclosing


def _launched_by(gpu: GpuOps, inner: HostEvents, outer: HostEvents) -> GpuOps:
    """The ops, with the id of `outer` in place of that of the `inner` call in the same row."""
    order = np.argsort(inner.correlation, kind="stable")
    row = rows_in(inner.correlation[order], gpu.correlation)
    correlation = np.append(outer.correlation[order], NOT_GIVEN)[row]
    return replace(gpu, correlation=np.where(row >= 0, correlation, gpu.correlation))


def read_rocprof(source: ByteSource) -> Trace:
    """Read kernel dispatches, copies, HIP and HSA calls and roctx ranges.

    A stream is a HIP stream, or a hardware queue where the file names no HIP stream. Copies that
    HIP makes with a kernel (`__amd_rocclr_copyBuffer`) are kernels here too. The times are of the
    machine's clock since it booted, so they have no wall clock.

    Raises:
        TraceError: the document is broken, too large, or not as rocprofv3 writes it.
    """
    processes = read_processes(source)
    names, shapes = Names(), Shapes()
    parts = [
        ProcessColumns(process, names, shapes, place) for place, process in enumerate(processes)
    ]
    table, moved = names.take_sorted()
    findings = [*_findings(parts)]
    calls = sorted_host_events(Growing(HostEvents, (part.calls for part in parts)), moved)
    gpu = Growing(GpuOps, (part.gpu for part in parts))
    return Trace(
        source=Source(
            path=source.path,
            format="rocprof-json",
            events=sum(process.buffer_records.count() for process in processes),
        ),
        names=table,
        device_names={
            number: name for part in parts for number, name in part.devices.names.items() if name
        },
        ops=sorted_gpu_ops(gpu, moved, calls, findings),
        calls=calls,
        cpu_ops=HostEvents.concatenate(()),
        ranges=sorted_host_events(Growing(HostEvents, (part.ranges for part in parts)), moved),
        findings=tuple(findings),
        capture=None,
        base_ns=0,
        shapes=shapes.table(),
    )


def _findings(parts: Sequence[ProcessColumns]) -> Iterator[Finding]:
    if not any(len(part.gpu) for part in parts):
        yield Finding(
            "no_kernel_trace", "the file has no kernels; record with rocprofv3 --runtime-trace"
        )
    elif not any(len(part.calls) for part in parts):
        yield Finding(
            "no_hip_trace",
            "the file has no HIP calls, so nothing is known of launches; record with rocprofv3 "
            "--runtime-trace",
        )
    if dropped := sum(part.dropped for part in parts):
        yield Finding(
            "dropped_events", f"{dropped} records without a usable start or end were left out"
        )
    if copies := sum(part.host_copies for part in parts):
        yield Finding("host_copies", f"{copies} copies between host memories were left out")
