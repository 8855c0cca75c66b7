"""Reads the JSON of rocprofv3 (`--output-format json`) into a `Trace`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

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
    Names,
    Shapes,
    last_before,
    sorted_gpu_ops,
    sorted_host_events,
)
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import KERNEL, MEMCPY, GpuOps, HostEvents, Int64s, Trace

_PROCESS_SHIFT = 32
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
        streams = (*(one.stream_id for one in kernels), *(one.stream_id for one in copies))
        self._by_stream = any(one.handle for one in streams)
        gpu = GpuOps.concatenate((self._kernels(kernels, process), self._copies(copies)))
        hip = self._calls(records.hip_api, process.strings)
        hsa = self._calls(records.hsa_api, process.strings)
        inside = _enclosing(hsa, hip)
        self.calls = HostEvents.concatenate((hip, hsa.take(inside < 0)))
        self.gpu = _launched_by(gpu, hsa.take(inside >= 0), hip.take(inside[inside >= 0]))
        self.ranges = self._ranges(records.marker_api, process.strings)

    def _kernels(self, records: Sequence[Dispatch], process: Process) -> GpuOps:
        kept, start_ns, end_ns = self._usable(records)
        symbols = {one.kernel_id: one for one in process.kernel_symbols}
        names = {
            one.kernel_id: one.formatted_kernel_name or one.demangled_kernel_name or one.kernel_name
            for one in process.kernel_symbols
        }
        infos = [one.dispatch_info for one in kept]
        queues = (
            [op.stream_id for op in kept] if self._by_stream else [info.queue_id for info in infos]
        )
        return self._ops(
            (start_ns, end_ns),
            [names.get(info.kernel_id) for info in infos],
            [self.devices.number(info.agent_id.handle) for info in infos],
            self._apart([queue.handle for queue in queues], 0),
            _ids(kept),
            KERNEL,
            [self._shape(info, symbols.get(info.kernel_id)) for info in infos],
        )

    def _shape(self, info: DispatchInfo, symbol: KernelSymbol | None) -> int:
        """The number of the launch shape; rocprofv3 counts the work-items of a grid."""
        threads, block = info.grid_size, info.workgroup_size
        registers = symbol.arch_vgpr_count if symbol else None
        return self._shapes.of(
            [
                -(-all_ // each) if each > 0 else 0
                for all_, each in zip(threads, block, strict=True)
            ],
            list(block),
            registers + symbol.accum_vgpr_count if symbol and registers is not None else None,
            info.group_segment_size,
        )

    def _copies(self, records: Sequence[Copy]) -> GpuOps:
        gpu = self.devices.is_gpu
        of_gpus = [
            one for one in records if gpu(one.src_agent_id.handle) or gpu(one.dst_agent_id.handle)
        ]
        self.host_copies += len(records) - len(of_gpus)
        kept, start_ns, end_ns = self._usable(of_gpus)
        ways = [(one.src_agent_id.handle, one.dst_agent_id.handle) for one in kept]
        streams = [one.stream_id.handle if self._by_stream else NOT_GIVEN for one in kept]
        return self._ops(
            (start_ns, end_ns),
            [f"Memcpy {self.devices.way(*way)}" for way in ways],
            [self.devices.number(one if gpu(one) else to) for one, to in ways],
            self._apart(streams, 0),
            _ids(kept),
            MEMCPY,
        )

    def _ops(
        self,
        times: tuple[Int64s, Int64s],
        texts: Sequence[str | None],
        devices: Sequence[int],
        streams: Int64s,
        ids: Sequence[int],
        kind: int,
        shapes: Sequence[int] | None = None,
    ) -> GpuOps:
        start_ns, end_ns = times
        none = np.full(len(texts), NOT_GIVEN, dtype=np.int64)
        return GpuOps(
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index(texts),
            device=_integers(devices),
            stream=streams,
            kind=np.full(len(texts), kind, dtype=np.int8),
            correlation=self._apart(ids, 1),
            external_id=none,
            graph_id=none,
            graph_node_id=none,
            launch=none,
            shape=(none if shapes is None else _integers(shapes)).astype(np.int32),
        )

    def _calls(self, records: Sequence[ApiCall], strings: Strings) -> HostEvents:
        kept, start_ns, end_ns = self._usable(records)
        texts = [_operation(one, strings) for one in kept]
        return self._host_events(kept, texts, start_ns, end_ns, self._apart(_ids(kept), 1))

    def _ranges(self, records: Sequence[ApiCall], strings: Strings) -> HostEvents:
        texts = {entry.key: entry.value for entry in strings.marker_api}
        ranges = [
            one
            for one in records
            if one.correlation_id.internal in texts
            and not (_operation(one, strings) or "").startswith(_MARK)
        ]
        kept, start_ns, end_ns = self._usable(ranges)
        messages = [texts[one.correlation_id.internal] for one in kept]
        none = np.full(len(kept), NOT_GIVEN, dtype=np.int64)
        return self._host_events(kept, messages, start_ns, end_ns, none)

    def _host_events(
        self,
        records: Sequence[ApiCall],
        texts: Sequence[str | None],
        start_ns: Int64s,
        end_ns: Int64s,
        correlation: Int64s,
    ) -> HostEvents:
        return HostEvents(
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index(texts),
            pid=_integers([self._pid] * len(records)),
            tid=_integers([one.thread_id for one in records]),
            correlation=correlation,
            external_id=np.full(len(records), NOT_GIVEN, dtype=np.int64),
        )

    def _usable(self, records: Sequence[_Record]) -> tuple[list[_Record], Int64s, Int64s]:
        """The records with a start and an end not before it, and these times."""
        start_ns = _integers([one.start_timestamp for one in records])
        end_ns = _integers([one.end_timestamp for one in records])
        usable = (start_ns > 0) & (start_ns <= end_ns) & (end_ns <= LIMIT_NS)
        self.dropped += int(np.count_nonzero(~usable))
        kept = [one for one, keep in zip(records, usable.tolist(), strict=True) if keep]
        return kept, start_ns[usable], end_ns[usable]

    def _apart(self, numbers: Sequence[int], least: int) -> Int64s:
        own = _integers(numbers)
        valid = (own >= least) & (own < 1 << _PROCESS_SHIFT)
        return np.where(valid, own + (self._place << _PROCESS_SHIFT), NOT_GIVEN)


def _ids(records: Sequence[Record]) -> list[int]:
    return [one.correlation_id.internal for one in records]


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
    found = np.full(len(inner), -1, dtype=np.int64)
    mine = np.flatnonzero(np.isin(inner.tid, outer.tid))
    if not len(mine):
        return found
    order = np.lexsort((outer.start_ns, outer.tid))
    by_thread = replace(outer.take(order), correlation=outer.tid[order])
    last = order[last_before(inner.start_ns[mine], inner.tid[mine], by_thread)]
    began = outer.start_ns[last] <= inner.start_ns[mine]
    inside = began & (outer.end_ns[last] >= inner.end_ns[mine])
    found[mine[inside]] = last[inside]
    return found


def _launched_by(gpu: GpuOps, inner: HostEvents, outer: HostEvents) -> GpuOps:
    """The ops, with the id of `outer` in place of that of the `inner` call in the same row."""
    order = np.argsort(inner.correlation, kind="stable")
    ids = inner.correlation[order]
    place = np.searchsorted(ids, gpu.correlation)
    meant = place < len(ids)
    meant[meant] = ids[place[meant]] == gpu.correlation[meant]
    correlation = gpu.correlation.copy()
    correlation[meant] = outer.correlation[order[place[meant]]]
    return replace(gpu, correlation=correlation)


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
    table, moved = names.sorted_table()
    findings = [Finding(*found) for found in _findings(parts)]
    calls = sorted_host_events([part.calls for part in parts], moved)
    gpu = GpuOps.concatenate([part.gpu for part in parts])
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
        ranges=sorted_host_events([part.ranges for part in parts], moved),
        findings=tuple(findings),
        capture=None,
        base_ns=0,
        shapes=shapes.table(),
    )


def _findings(parts: Sequence[ProcessColumns]) -> Iterator[tuple[str, str]]:
    if not any(len(part.gpu) for part in parts):
        yield "no_kernel_trace", "the file has no kernels; record with rocprofv3 --runtime-trace"
    elif not any(len(part.calls) for part in parts):
        yield (
            "no_hip_trace",
            "the file has no HIP calls, so nothing is known of launches; record with rocprofv3 "
            "--runtime-trace",
        )
    if dropped := sum(part.dropped for part in parts):
        yield "dropped_events", f"{dropped} records without a usable start or end were left out"
    if copies := sum(part.host_copies for part in parts):
        yield "host_copies", f"{copies} copies between host memories were left out"
