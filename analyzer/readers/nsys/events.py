"""The events of an Nsight Systems export.

GPU ops (kernels, copies, fills, graphs traced as a whole), CUDA API calls, NVTX ranges and
framework operators.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from decodescope.analyzer.readers.nsys.database import MAX_IDS, NsysDatabase, unpacked
from decodescope.analyzer.readers.trace_columns import (
    NOT_GIVEN,
    Growing,
    Names,
    Shapes,
    host_events,
    ops_of,
)
from decodescope.analyzer.trace import (
    GRAPH,
    KERNEL,
    MEMCPY,
    MEMSET,
    GpuOps,
    HostEvents,
    Int32s,
    Int64s,
    row_numbers,
)

KERNEL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GPU_TABLES = (KERNEL_TABLE, MEMCPY_TABLE, MEMSET_TABLE, GRAPH_TABLE)
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, as libkineto names them.
_COPIES = (
    "Unknown",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "HtoD",
    "DtoH",
    "DtoD",
)
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
# The bits hold CUDA's limits: 2**31 - 1 blocks along x and 65,535 along y and z, 1,024 threads.
_SHAPE = {
    "grid": (("gridX", 31), ("gridY", 16), ("gridZ", 16)),
    "block": (("blockX", 16), ("blockY", 16), ("blockZ", 16)),
    "resources": (
        ("registersPerThread", 12),
        ("staticSharedMemory", 25),
        ("dynamicSharedMemory", 25),
    ),
}
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_NVTX_TABLE = "NVTX_EVENTS"
# Names are found for so many rows at a time: what that takes is freed again.
_NAMED_ROWS = 1 << 16
# NvtxPushPopRange, NvtxStartEndRange, and the same from imported NVTX text files.
_RANGE_TYPES = "(59, 60, 70, 71)"
_VERSION = re.compile(r"_v\d{4,5}$")
# torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 3, op_id = 7, sizes = [[…]]`.
_EMITTED = re.compile(r", (?:seq = |op_id = |sizes = \[)")
_OPERATOR = re.compile(r"[a-z_]\w*::\w+(?:\.\w+)?$|autograd::|\w+Backward\d*$")


@dataclass(frozen=True, slots=True, eq=False)
class ProcessOps(GpuOps):
    """GPU ops and the process of each."""

    pid: Int64s


def all_gpu_ops(database: NsysDatabase, names: Names, shapes: Shapes) -> Growing[ProcessOps]:
    """All GPU ops with usable times, not yet joined with their calls.

    A graph that was traced as a whole is one op of kind GRAPH, unless its nodes are there too.
    Device, stream and correlation are as in the file: per process.
    """
    gpu = Growing(ProcessOps, _kernels(database, shapes))
    gpu.change(name=named(database, names, gpu.rows().name))
    for part in chain(_copies(database, names), _fills(database, names)):
        gpu.append(part)
    graphs = Growing(ProcessOps, _graphs(database, names))
    if len(graphs):
        nodes, whole = gpu.rows(), graphs.rows()
        key = row_numbers(
            np.concatenate((whole.pid, nodes.pid)),
            np.concatenate((whole.correlation, nodes.correlation)),
        )
        gpu.append(whole.take(~np.isin(key[: len(whole)], key[len(whole) :])))
    return gpu


def _ops(rows: dict[str, Int64s], name: Int32s | Int64s, kind: int, **more: Any) -> ProcessOps:
    graph_id, node_id = rows["graphId"], rows["graphNodeId"]
    in_graph = node_id > 0
    graph = np.where(graph_id > 0, graph_id, node_id >> 32)
    columns = {
        "graph_id": np.where(in_graph, graph, NOT_GIVEN),
        "graph_node_id": np.where(in_graph, node_id, NOT_GIVEN),
    }
    return ops_of(
        ProcessOps,
        kind,
        start_ns=rows["start_ns"],
        end_ns=rows["end_ns"],
        name=name,
        device=rows["deviceId"],
        stream=rows["streamId"],
        correlation=rows["correlationId"],
        pid=_process_of(rows["globalPid"]),
        **columns | more,
    )


def _kernels(database: NsysDatabase, shapes: Shapes) -> Iterator[ProcessOps]:
    """The kernels; `name` holds the file's numbers of their names."""

    def shape(*packed: int) -> int:
        grid, block, (registers, static, dynamic) = map(unpacked, packed, _SHAPE.values())
        return shapes.of(grid, block, registers, static + dynamic)

    first = {"name": _KERNEL_NAMES}
    for rows in database.events(KERNEL_TABLE, _PLACE, packed=_SHAPE, first=first):
        yield _ops(rows, rows["name"], KERNEL, shape=_of_each(rows, _SHAPE, shape))


def _of_each(rows: dict[str, Int64s], columns: Iterable[str], number: Callable[..., int]) -> Int32s:
    """`number` of the values of some columns in each row, computed once for equal rows."""
    chosen = [rows[column] for column in columns]
    index = row_numbers(*chosen)
    one = np.empty(index.max(initial=-1) + 1, dtype=np.int64)
    one[index] = np.arange(len(index))
    distinct = zip(*(column[one].tolist() for column in chosen), strict=True)
    return np.array([number(*values) for values in distinct], dtype=np.int32)[index]


def _copies(database: NsysDatabase, names: Names) -> Iterator[ProcessOps]:
    kinds = ("copyKind", "srcKind", "dstKind")

    def name(copy: int, source: int, target: int) -> int:
        memories = f"{_word(_MEMORIES, source)} -> {_word(_MEMORIES, target)}"
        return names[f"Memcpy {_word(_COPIES, copy)} ({memories})"]

    for rows in database.events(MEMCPY_TABLE, (*_PLACE, *kinds)):
        yield _ops(rows, _of_each(rows, kinds, name), MEMCPY)


def _fills(database: NsysDatabase, names: Names) -> Iterator[ProcessOps]:
    def name(kind: int) -> int:
        return names[f"Memset ({_word(_MEMORIES, kind)})"]

    for rows in database.events(MEMSET_TABLE, (*_PLACE, "memKind")):
        yield _ops(rows, _of_each(rows, ("memKind",), name), MEMSET)


def _graphs(database: NsysDatabase, names: Names) -> Iterator[ProcessOps]:
    def name(number: int) -> int:
        return names[f"CUDA graph {number}" if number >= 0 else "CUDA graph"]

    for rows in database.events(GRAPH_TABLE, (*_PLACE, "graphExecId")):
        own_names = _of_each(rows, ("graphExecId",), name)
        yield _ops(rows, own_names, GRAPH, graph_id=rows["graphId"])


def named(database: NsysDatabase, names: Names, ids: Int32s | Int64s) -> Int32s:
    """The interned number of each id's text; an id without a text is `UNNAMED`."""
    # `np.unique` would make a hash set of them, with a node for each.
    ordered = np.sort(ids)
    is_first = np.ones(len(ids), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct = ordered[is_first]
    del ordered
    numbers = np.empty(len(distinct), dtype=np.int32)
    for at in range(0, len(distinct), MAX_IDS):
        some = distinct[at : at + MAX_IDS].tolist()
        texts = database.texts(some)
        numbers[at : at + MAX_IDS] = names.index([texts.get(number) for number in some])
    number_of_each = np.empty(len(ids), dtype=np.int32)
    for at in range(0, len(ids), _NAMED_ROWS):
        row = np.searchsorted(distinct, ids[at : at + _NAMED_ROWS])
        number_of_each[at : at + _NAMED_ROWS] = numbers[row]
    return number_of_each


def _word(words: Sequence[str], index: int) -> str:
    return words[index] if 0 <= index < len(words) else "Unknown"


def api_calls(database: NsysDatabase, names: Names) -> Growing[HostEvents]:
    """CUDA runtime and driver calls; their names lose the version (`cudaLaunchKernel_v7000`)."""
    wanted = ("globalTid", "correlationId", "nameId")
    parts = chain.from_iterable(database.events(table, wanted) for table in _CALL_TABLES)
    calls = Growing(
        HostEvents,
        (_host_events(rows, rows["nameId"], correlation=rows["correlationId"]) for rows in parts),
    )
    raw = Names()
    index = named(database, raw, calls.rows().name)
    number = names.index([_VERSION.sub("", text) for text in filter(None, raw)])
    return calls.change(name=number[index])


def nvtx_ranges(
    database: NsysDatabase, names: Names
) -> tuple[Growing[HostEvents], Growing[HostEvents], int]:
    """NVTX ranges of all domains; the operators that PyTorch wrote as NVTX; the number of ranges
    that never ended."""
    ranges = (
        f'"eventType" IN {_RANGE_TYPES}' if database.file.has(_NVTX_TABLE, "eventType") else "1"
    )
    left_open = f'{ranges} AND "end" IS NULL' if database.file.has(_NVTX_TABLE, "end") else "0"
    closed = f'{ranges} AND "end" IS NOT NULL' if database.file.has(_NVTX_TABLE, "end") else ranges
    operators: set[int] = set()

    def number(text: str) -> int:
        """The number of a range's text without PyTorch's suffixes."""
        emitted = _EMITTED.search(text)
        if emitted is None:
            return names[text]
        text = text[: emitted.start()]
        if _OPERATOR.match(text):
            operators.add(names[text])
        return names[text]

    events = Growing(HostEvents)
    for rows in database.events(_NVTX_TABLE, ("globalTid", "textId"), closed, number):
        name, registered = rows["text"].astype(np.int32), named(database, names, rows["textId"])
        events.append(_host_events(rows, np.where(name >= 0, name, registered)))
    emitted = Growing(HostEvents)
    if operators:
        is_operator = np.isin(events.rows().name, sorted(operators))
        emitted.append(events.rows().take(is_operator))
        events.keep(~is_operator)
    return events, emitted, database.file.count(_NVTX_TABLE, left_open)


def _host_events(
    rows: dict[str, Int64s], name: Int32s | Int64s, **correlation: Int64s
) -> HostEvents:
    global_tid = rows["globalTid"]
    return host_events(
        start_ns=rows["start_ns"],
        end_ns=rows["end_ns"],
        name=name,
        pid=_process_of(global_tid),
        tid=np.where(global_tid < 0, NOT_GIVEN, global_tid & 0xFFFFFF),
        **correlation,
    )


def _process_of(global_id: Int64s) -> Int64s:
    """The process inside a serialized global id (hardware 8 bits, VM 8, process 24, thread 24)."""
    return np.where(global_id < 0, NOT_GIVEN, (global_id >> 24) & 0xFFFFFF)
