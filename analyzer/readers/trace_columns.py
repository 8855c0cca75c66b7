"""The columns that all readers build: names as numbers, events in order, ops with their calls.

They grow while a file is read, and are sorted, without ever being held twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from mmap import ACCESS_COPY, mmap
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from decodescope.analyzer.readers.kernel_times import none_if_untimed
from decodescope.analyzer.schema.kernel_report import LaunchShape
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.text.numbers import is_integer
from decodescope.analyzer.trace import (
    Bools,
    Columns,
    GpuOps,
    HostEvents,
    Int32s,
    Int64s,
    Intervals,
    rows_in,
)

Rows = TypeVar("Rows", bound=Columns)
_Fewer = TypeVar("_Fewer", bound=Columns)
_Ops = TypeVar("_Ops", bound=GpuOps)


class Growing(Generic[Rows]):
    """The rows of all parts that were appended, one array a column.

    An array gets four times its pages when it is full. A column of which all values are
    `NOT_GIVEN` takes no memory until rows are chosen. `rows` are views, read-only where nothing is
    given.
    """

    def __init__(self, kind: type[Rows], parts: Iterable[Rows] = ()) -> None:
        self._kind = kind
        self._count = 0
        self._columns: dict[str, NDArray[Any]] = {}
        for part in parts:
            self.append(part)

    def __len__(self) -> int:
        return self._count

    def append(self, part: Rows) -> None:
        begin, self._count = self._count, self._count + len(part)
        for field in fields(self._kind):
            values = getattr(part, field.name)
            column = self._columns.get(field.name, _not_given(0, values.dtype))
            if column.strides == (0,) and (values == NOT_GIVEN).all():
                self._columns[field.name] = _not_given(self._count, values.dtype)
                continue
            if self._count > len(column) or column.strides == (0,):
                held, column = column, _in_pages(max(self._count, 4 * begin), column.dtype)
                column[:begin] = held[:begin]
                self._columns[field.name] = column
            column[begin : self._count] = values

    def rows(self) -> Rows:
        columns = {name: column[: self._count] for name, column in self._columns.items()}
        none = np.zeros(0, dtype=np.int64)
        return self._kind(**{field.name: none for field in fields(self._kind)} | columns)

    def only(self, kind: type[_Fewer]) -> "Growing[_Fewer]":
        """The columns of `kind`, which `self` must not change from then on."""
        growing = Growing(kind)
        growing._count = self._count
        names = self._columns.keys() & {field.name for field in fields(kind)}
        growing._columns = {name: self._columns[name] for name in names}
        return growing

    def change(self, **columns: NDArray[Any]) -> Self:
        """Put these columns in the place of those of the same names."""
        self._columns |= columns
        return self

    def keep(self, chosen: Int64s | Bools) -> Self:
        """Keep the chosen rows, in their order, one column after another."""
        for name, column in self._columns.items():
            self._columns[name] = column[: self._count][chosen]
        self._count = len(next(iter(self._columns.values()), ()))
        return self


def _in_pages(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in pages of its own, which take no memory until they are written. Those that are
    freed go back to the system; what `malloc` frees while others grow leaves holes."""
    pages = mmap(-1, max(count, 1) * dtype.itemsize, access=ACCESS_COPY)
    return np.frombuffer(pages, dtype=dtype, count=count)


def _not_given(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.broadcast_to(np.array(NOT_GIVEN, dtype=dtype), count)


UNNAMED = "(unnamed)"
NOT_GIVEN = -1
PROCESS_SHIFT = 32
# Times beyond this are not usable.
LIMIT_NS = 2**61
# Grids have at most 2**31 - 1 blocks along an axis, or 2**32 threads.
_LARGEST_AMOUNT = 1 << 40
# Three times the longest name in the traces of others that we have.
MAX_NAME = 16_384
# Ops are joined with their calls so many at a time: what that takes is freed again.
_JOINED_ROWS = 1 << 16


def usable_base(base_ns: object, findings: list[Finding]) -> int:
    """The wall clock at a file's time 0, as the file says it; 0 and a finding if it is no time."""
    if base_ns is None:
        return 0
    if is_integer(base_ns) and abs(base_ns) < LIMIT_NS:
        return base_ns
    message = "the wall clock of the file's time 0 is no usable time and ignored"
    findings.append(Finding("bad_base_time", message))
    return 0


def overhead_finding(pauses: Intervals) -> Iterator[Finding]:
    if len(pauses):
        yield Finding(
            "profiler_overhead",
            f"the profiler reports {len(pauses)} pauses of its own, "
            f"{int(pauses.length_ns.sum()) / 1e6:.3f} ms in all",
        )


class Names(dict[str | None, int]):
    """The number of each text, in order of appearance; None and "" are `UNNAMED`.

    Of a text longer than `MAX_NAME` the middle is left out, so that what repeats names stays small;
    `shortened` counts such texts.
    """

    shortened = 0

    def __missing__(self, text: str | None) -> int:
        if not text:
            return self[UNNAMED]
        if len(text) > MAX_NAME:
            middle = f" … {len(text):,} characters … "
            half = (MAX_NAME - len(middle)) // 2
            before = len(self)
            number = self[text[:half] + middle + text[-half:]]
            self.shortened += len(self) - before
            return number
        self[text] = number = len(self)
        return number

    def index(self, texts: Sequence[str | None]) -> Int32s:
        return np.fromiter(map(self.__getitem__, texts), dtype=np.int32, count=len(texts))

    def findings(self) -> Iterator[Finding]:
        """The findings on texts that were left out of the names."""
        if self.shortened:
            yield Finding(
                "long_names",
                f"the middle of names over {MAX_NAME:,} characters ({self.shortened}) is left out",
            )

    def take_sorted(self) -> tuple[tuple[str, ...], Int32s]:
        """The names in alphabetical order, and the new number of each old one. None is left here:
        a million names would be held twice."""
        texts = [*filter(None, self)]
        self.clear()
        order = sorted(range(len(texts)), key=texts.__getitem__)
        moved = np.empty(len(texts), dtype=np.int32)
        moved[order] = np.arange(len(texts))
        return tuple(map(texts.__getitem__, order)), moved


class Shapes:
    """Interns launch shapes in order of appearance; a shape without any figure is `NOT_GIVEN`."""

    def __init__(self) -> None:
        self._ids: dict[LaunchShape, int] = {LaunchShape(): NOT_GIVEN}

    def of(
        self,
        grid: Sequence[int] | None,
        block: Sequence[int] | None,
        registers: int | None,
        shared_memory_bytes: int | None,
    ) -> int:
        """The number of the shape; negative and too large figures count as not given."""
        shape = LaunchShape(
            grid=_extent(grid),
            block=_extent(block),
            registers_per_thread=_amount(registers),
            shared_memory_bytes=_amount(shared_memory_bytes),
        )
        return self._ids.setdefault(shape, len(self._ids) - 1)

    def table(self) -> tuple[LaunchShape, ...]:
        """The shapes in order of their numbers."""
        return tuple(self._ids)[1:]


def _amount(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= _LARGEST_AMOUNT else None


def _extent(values: Sequence[int] | None) -> tuple[int, int, int] | None:
    sizes = [_amount(value) for value in values or ()]
    if len(sizes) != 3 or not all(sizes):
        return None
    x, y, z = (size or 0 for size in sizes)
    return x, y, z


def gpu_ops(kind: int, **columns: NDArray[np.integer]) -> GpuOps:
    """Ops of one kind with these columns; every other column is `NOT_GIVEN`."""
    return ops_of(GpuOps, kind, **columns)


def ops_of(structure: type[_Ops], kind: int, **columns: NDArray[np.integer]) -> _Ops:
    """As `gpu_ops`, in a structure with more columns."""
    missing = np.full(len(columns["start_ns"]), NOT_GIVEN, dtype=np.int64)
    filled: dict[str, Any] = {field.name: missing for field in fields(structure)}
    filled["kind"] = np.full_like(missing, kind, dtype=np.int8)
    filled["shape"] = missing.astype(np.int32)
    return structure(**filled | columns)


def host_events(**columns: NDArray[np.integer]) -> HostEvents:
    """Host events with these columns; every other column is `NOT_GIVEN`."""
    missing = np.full(len(columns["start_ns"]), NOT_GIVEN, dtype=np.int64)
    filled: dict[str, Any] = {field.name: missing for field in fields(HostEvents)}
    return HostEvents(**filled | columns)


def own_ids(ids: Int64s, place: Int64s | int, least: int = 1) -> Int64s:
    """Ids that are unique among processes: each is raised by `place` * 2**32; `NOT_GIVEN` for those
    below `least` or of more than 32 bits."""
    valid = (ids >= least) & (ids < 1 << PROCESS_SHIFT)
    return np.where(valid, ids + (place << PROCESS_SHIFT), NOT_GIVEN)


def sorted_host_events(growing: Growing[HostEvents], names: Int32s) -> HostEvents:
    """Host events by (start, longest first), then by pid, thread, correlation and name, so that the
    order of a file does not matter. `names` holds the new number of each name."""

    def order() -> Int64s:
        events = growing.rows()
        ties = (events.name, events.correlation, events.tid, events.pid)
        return np.lexsort((*ties, -events.end_ns, events.start_ns))

    growing.change(name=names[growing.rows().name])
    return growing.keep(order()).rows()


def sorted_gpu_ops(
    growing: Growing[GpuOps], names: Int32s, calls: HostEvents, findings: list[Finding]
) -> GpuOps:
    """GPU ops by (start, end, device, stream, correlation, name), each with its launch call.

    `names` holds the new number of each name. Correlation ids that several calls share are reported
    to `findings`.
    """

    def order() -> Int64s:
        ops = growing.rows()
        ties = (ops.name, ops.correlation, ops.stream, ops.device)
        return np.lexsort((*ties, ops.end_ns, ops.start_ns))

    ops = growing.rows()
    growing.change(name=names[ops.name], kind=ops.kind.astype(np.int8, copy=False))
    del ops
    ops = growing.keep(order()).rows()
    ops = none_if_untimed(ops, findings)
    shared = _join_launches(ops, calls)
    if shared:
        findings.append(
            Finding(
                "duplicate_correlation",
                f"{shared} host calls share a correlation id with another one; each op went to the "
                "call with its external id too, else to the last such call before it",
            )
        )
    return ops


def _join_launches(ops: GpuOps, calls: HostEvents) -> int:
    """Set `ops.launch`: the index of each op's launch call, or -1; returns how many calls share a
    correlation id.

    An op belongs to the call with its correlation id. If several calls have that id (concatenated
    files of several processes, an id that wrapped), only those with the op's external id count, if
    there are any; of these, the last one that began no later than the op started, else the first.
    A call inside another of the same id and thread (a driver call below a runtime call) is ignored.
    """
    rows = _outermost_calls(calls)
    ids = calls.correlation[rows]
    repeats = np.zeros(len(ids) + 1, dtype=np.bool_)
    repeats[1:-1] = ids[1:] == ids[:-1]
    shared = rows[repeats[1:] | repeats[:-1]]
    shared = shared[calls.external_id[shared] > 0]
    shared_ids = np.unique(calls.correlation[shared])
    external_ids = np.unique(calls.external_id[shared])

    def pair(events: GpuOps | HostEvents) -> Int64s:
        """A number for both ids of each event, -1 if no shared call has them."""
        first = rows_in(shared_ids, events.correlation)
        second = rows_in(external_ids, events.external_id)
        return np.where((first < 0) | (second < 0), -1, first << PROCESS_SHIFT | second)

    pairs = pair(calls.take(shared))
    shared = shared[np.argsort(pairs, kind="stable")]
    pairs.sort()
    for at in range(0, len(ops), _JOINED_ROWS):
        part = ops.take(slice(at, at + _JOINED_ROWS))
        part.launch[:] = last_before(part.start_ns, part.correlation, calls, rows, ids)
        if len(shared):
            exact = last_before(part.start_ns, pair(part), calls, shared, pairs)
            part.launch[exact >= 0] = exact[exact >= 0]
    return int(np.count_nonzero(repeats))


def last_before(
    at_ns: Int64s, key: Int64s, calls: HostEvents, rows: Int64s, row_keys: Int64s
) -> Int64s:
    """For each time, the last call of the same key that began no later, else that key's first; -1
    if no call has the key. `rows` of the calls count: `row_keys` are their keys, in order, and
    those of a key are in order of start."""
    first = np.searchsorted(row_keys, key, side="left")
    high = np.searchsorted(row_keys, key, side="right")
    known = np.flatnonzero(first < high)
    low = first + 1
    while len(open_ := np.flatnonzero(low < high)):
        middle = (low[open_] + high[open_]) >> 1
        began = calls.start_ns[rows[middle]] <= at_ns[open_]
        low[open_[began]] = middle[began] + 1
        high[open_[~began]] = middle[~began]
    last = np.full(len(key), -1, dtype=np.int64)
    last[known] = rows[low[known] - 1]
    return last


def _outermost_calls(calls: HostEvents) -> Int64s:
    """The rows of the calls with a correlation id, by that id and then by start, without calls
    inside one of the same id and thread."""
    rows = np.flatnonzero(calls.correlation > 0).astype(np.int64, copy=False)
    rows = rows[np.argsort(calls.correlation[rows], kind="stable")]
    ids = calls.correlation[rows]
    repeats = np.flatnonzero(ids[1:] == ids[:-1]) + 1
    before, after = rows[repeats - 1], rows[repeats]
    nested = (
        (calls.pid[before] == calls.pid[after])
        & (calls.tid[before] == calls.tid[after])
        & (calls.end_ns[after] <= calls.end_ns[before])
    )
    return np.delete(rows, repeats[nested])
