"""The records of a process of rocprofv3 as columns, batch by batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import compress
from typing import Any, TypeVar

import numpy as np
from msgspec.structs import astuple

from decodescope.analyzer.readers.rocprof.document import (
    ApiCall,
    Copy,
    Devices,
    Dispatch,
    Entry,
    KernelSymbol,
    OperationNames,
    Record,
)
from decodescope.analyzer.readers.trace_columns import (
    LIMIT_NS,
    NOT_GIVEN,
    Growing,
    Names,
    Shapes,
    host_events,
    last_before,
    ops_of,
    own_ids,
)
from decodescope.analyzer.trace import KERNEL, MEMCPY, Columns, GpuOps, HostEvents, Int64s, rows_in

_MARK = "roctxMark"
_RECORDS = "buffer_records."
# Calls are looked for so many at a time: what that takes is freed again.
_BLOCK_ROWS = 1 << 16
_REMEMBERED_SHAPES = 1 << 12
_Record = TypeVar("_Record", bound=Record)
Finished = tuple[Growing[GpuOps], Growing[HostEvents], Growing[HostEvents]]
_Extent = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedOps(GpuOps):
    """GPU ops; `stream` is a HIP stream, `queue` the hardware queue."""

    queue: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Numbered(Columns):
    number: Int64s
    amount: Int64s


class _Texts:
    """Texts and an amount (-1 for none) by their number in the document; of equal numbers, the
    first counts. As columns, a million take a fraction of what a dictionary does."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._rows = Growing(_Numbered)
        self._sorted = True

    def add(self, numbers: Sequence[int], texts: Sequence[str], amounts: Sequence[int]) -> None:
        self._texts += texts
        self._rows.append(_Numbered(_integers(numbers), _integers(amounts)))
        self._sorted = False

    def find(self, numbers: Sequence[int]) -> tuple[list[str | None], list[int]]:
        """The text and the amount of each number; None and -1 for those without one."""
        if not self._sorted:
            order = np.argsort(self._rows.rows().number, kind="stable")
            self._rows.keep(order)
            self._texts = [*map(self._texts.__getitem__, order)]
            self._sorted = True
        rows = self._rows.rows()
        row = rows_in(rows.number, _integers(numbers))
        known = row >= 0
        amounts = np.full(len(row), NOT_GIVEN, dtype=np.int64)
        amounts[known] = rows.amount[row[known]]
        return [self._texts[at] if at >= 0 else None for at in row.tolist()], amounts.tolist()


class ProcessColumns:
    """Takes a process part by part; `finish` returns its GPU ops, calls and ranges.

    Ids and streams are raised by `place` * 2**32, so that they are unique among processes. An op
    belongs to the innermost call around its launch. An HSA call inside a HIP call is part of that,
    so the op goes to the HIP call. `records` counts all records, `dropped` those without a usable
    start or end, `host_copies` copies that no GPU is part of; neither are in the columns.
    """

    def __init__(self, names: Names, shapes: Shapes, place: int) -> None:
        self.records = 0
        self.dropped = 0
        self.host_copies = 0
        self.devices = Devices()
        self._names = names
        self._shape = lru_cache(_REMEMBERED_SHAPES)(partial(_number_shape, shapes))
        self._place = place
        self._ops = Growing(_QueuedOps)
        self._calls = Growing(HostEvents)
        self._hsa = Growing(HostEvents)
        self._ranges = Growing(HostEvents)
        self._by_stream = False
        self._operations: list[list[str | None]] = []
        self._kernels = _Texts()
        self._markers = _Texts()

    def add(self, path: str, batch: list[Any]) -> bool:
        """Take a batch of the list `path` of the process; False if it names records that came
        before it."""
        if path.startswith(_RECORDS):
            self.records += len(batch)
        elif batch and self.records:
            return False
        take: dict[str, Callable[[Any], None]] = {
            "agents": self.devices.add,
            "strings.buffer_records": self._add_operations,
            "strings.marker_api": self._add_markers,
            "kernel_symbols": self._add_symbols,
            "buffer_records.kernel_dispatch": self._add_kernels,
            "buffer_records.memory_copy": self._add_copies,
            "buffer_records.hip_api": self._add_hip,
            "buffer_records.hsa_api": self._add_hsa,
            "buffer_records.marker_api": self._add_ranges,
        }
        take[path](batch)
        return True

    def finish(self, pid: int) -> Finished:
        """The events of the process, whose columns are no longer held here."""
        ops, calls, hsa, ranges = self._ops, self._calls, self._hsa, self._ranges
        self._ops, self._calls = Growing(_QueuedOps), Growing(HostEvents)
        self._hsa, self._ranges = Growing(HostEvents), Growing(HostEvents)
        self._kernels, self._markers = _Texts(), _Texts()
        queued = ops.rows()
        stream = own_ids(queued.stream if self._by_stream else queued.queue, self._place, 0)
        gpu = ops.only(GpuOps).change(stream=stream)
        del ops, queued
        inside = _enclosing(hsa.rows(), calls.rows())
        if (inside >= 0).any():
            outer = calls.rows().correlation[inside[inside >= 0]]
            inner = hsa.rows().correlation[inside >= 0]
            gpu.change(correlation=_launched_by(gpu.rows().correlation, inner, outer))
        outside = np.append(np.ones(len(calls), dtype=np.bool_), inside < 0)
        calls.append(hsa.rows())
        del hsa
        if not outside.all():
            calls.keep(outside)
        (pid,) = _integers([pid]).tolist()
        for events in (calls, ranges):
            events.change(pid=np.full(len(events), pid, dtype=np.int64))
        return gpu, calls, ranges

    def _add_operations(self, kinds: list[OperationNames]) -> None:
        self._operations += (kind.operations for kind in kinds)

    def _add_markers(self, entries: list[Entry[str]]) -> None:
        numbers = [entry.key for entry in entries]
        self._markers.add(numbers, [entry.value for entry in entries], [NOT_GIVEN] * len(entries))

    def _add_symbols(self, symbols: list[KernelSymbol]) -> None:
        registers = [
            NOT_GIVEN if one.arch_vgpr_count is None else one.arch_vgpr_count + one.accum_vgpr_count
            for one in symbols
        ]
        self._kernels.add([one.kernel_id for one in symbols], [*map(_name, symbols)], registers)

    def _add_kernels(self, records: list[Dispatch]) -> None:
        kept, start_ns, end_ns = self._usable(records)
        infos = [record.dispatch_info for record in kept]
        names, registers = self._kernels.find([info.kernel_id for info in infos])
        shapes = [
            self._shape(
                astuple(info.grid_size), astuple(info.workgroup_size), each, info.group_segment_size
            )
            for info, each in zip(infos, registers, strict=True)
        ]
        self._ops.append(
            ops_of(
                _QueuedOps,
                KERNEL,
                start_ns=start_ns,
                end_ns=end_ns,
                name=self._names.index(names),
                device=_integers([self.devices.number(info.agent_id.handle) for info in infos]),
                stream=self._streams(kept),
                queue=_integers([info.queue_id.handle for info in infos]),
                correlation=self._own(kept),
                shape=np.array(shapes, dtype=np.int32),
            )
        )

    def _add_copies(self, records: list[Copy]) -> None:
        is_gpu = self.devices.is_gpu
        of_gpus = [record for record in records if any(map(is_gpu, _ends(record)))]
        self.host_copies += len(records) - len(of_gpus)
        kept, start_ns, end_ns = self._usable(of_gpus)
        gpus = [next(filter(is_gpu, _ends(record))) for record in kept]
        self._ops.append(
            ops_of(
                _QueuedOps,
                MEMCPY,
                start_ns=start_ns,
                end_ns=end_ns,
                name=self._names.index(
                    [f"Memcpy {self.devices.way(*_ends(copy))}" for copy in kept]
                ),
                device=_integers([self.devices.number(gpu) for gpu in gpus]),
                stream=self._streams(kept),
                correlation=self._own(kept),
            )
        )

    def _streams(self, records: Sequence[Dispatch] | Sequence[Copy]) -> Int64s:
        handles = [record.stream_id.handle for record in records]
        self._by_stream = self._by_stream or any(handles)
        return _integers(handles)

    def _add_hip(self, records: list[ApiCall]) -> None:
        self._calls.append(self._api_calls(records))

    def _add_hsa(self, records: list[ApiCall]) -> None:
        self._hsa.append(self._api_calls(records))

    def _api_calls(self, records: list[ApiCall]) -> HostEvents:
        kept, start_ns, end_ns = self._usable(records)
        events = self._host_events(kept, start_ns, end_ns, [*map(self._operation, kept)])
        return replace(events, correlation=self._own(kept))

    def _add_ranges(self, records: list[ApiCall]) -> None:
        texts, _ = self._markers.find(_ids(records))
        is_range = [
            text is not None and not (self._operation(record) or "").startswith(_MARK)
            for record, text in zip(records, texts, strict=True)
        ]
        ranges = [*compress(records, is_range)]
        kept, start_ns, end_ns = self._usable(ranges)
        texts, _ = self._markers.find(_ids(kept))
        self._ranges.append(self._host_events(kept, start_ns, end_ns, texts))

    def _operation(self, call: ApiCall) -> str | None:
        kinds = self._operations
        names = kinds[call.kind] if 0 <= call.kind < len(kinds) else []
        return names[call.operation] if 0 <= call.operation < len(names) else None

    def _host_events(
        self,
        records: Sequence[ApiCall],
        start_ns: Int64s,
        end_ns: Int64s,
        names: Sequence[str | None],
    ) -> HostEvents:
        """Events without their process and ids."""
        return host_events(
            start_ns=start_ns,
            end_ns=end_ns,
            name=self._names.index(names),
            tid=_integers([record.thread_id for record in records]),
        )

    def _usable(self, records: Sequence[_Record]) -> tuple[list[_Record], Int64s, Int64s]:
        start_ns = _integers([record.start_timestamp for record in records])
        end_ns = _integers([record.end_timestamp for record in records])
        usable = (start_ns > 0) & (start_ns <= end_ns) & (end_ns <= LIMIT_NS)
        self.dropped += int(np.count_nonzero(~usable))
        kept = list(compress(records, usable.tolist()))
        return kept, start_ns[usable], end_ns[usable]

    def _own(self, records: Sequence[Record]) -> Int64s:
        return own_ids(_integers(_ids(records)), self._place)


def _number_shape(
    shapes: Shapes, grid: _Extent, block: _Extent, registers: int, lds_bytes: int | None
) -> int:
    """The number of a launch shape; rocprofv3 counts the work-items of a grid."""
    blocks = [
        -(-threads // size) if size > 0 else 0 for threads, size in zip(grid, block, strict=True)
    ]
    return shapes.of(blocks, block, registers, lds_bytes)


def _ids(records: Sequence[Record]) -> list[int]:
    return [record.correlation_id.internal for record in records]


def _ends(copy: Copy) -> tuple[int, int]:
    """The agents that a copy reads from and writes to."""
    return copy.src_agent_id.handle, copy.dst_agent_id.handle


def _name(symbol: KernelSymbol) -> str:
    return symbol.formatted_kernel_name or symbol.demangled_kernel_name or symbol.kernel_name


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
    order = np.lexsort((outer.start_ns, outer.tid))
    threads = outer.tid[order]
    for at in range(0, len(inner) if len(outer) else 0, _BLOCK_ROWS):
        part = inner.take(slice(at, at + _BLOCK_ROWS))
        last = last_before(part.start_ns, part.tid, outer, order, threads)
        inside = (outer.start_ns[last] <= part.start_ns) & (outer.end_ns[last] >= part.end_ns)
        enclosing[at : at + _BLOCK_ROWS] = np.where(inside, last, -1)
    return enclosing


def _launched_by(ids: Int64s, inner: Int64s, outer: Int64s) -> Int64s:
    """The ids, with that of the `outer` call in place of that of the `inner` one in its row."""
    order = np.argsort(inner, kind="stable")
    row = rows_in(inner[order], ids)
    return np.where(row >= 0, np.append(outer[order], NOT_GIVEN)[row], ids)
