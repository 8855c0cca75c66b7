"""The events of an Nsight Systems export.

GPU ops (kernels, copies, fills, graphs traced as a whole), CUDA API calls, NVTX ranges and
framework operators.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from decodescope.analyzer.readers.nsys.database import MAX_IDS, NsysDatabase, unpacked
from decodescope.analyzer.readers.trace_columns import (
    NOT_GIVEN,
    Names,
    Shapes,
    gpu_ops,
    host_events,
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
_ProcessOps = tuple[GpuOps, Int64s]
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_NVTX_TABLE = "NVTX_EVENTS"
# NvtxPushPopRange, NvtxStartEndRange, and the same from imported NVTX text files.
_RANGE_TYPES = "(59, 60, 70, 71)"
_VERSION = re.compile(r"_v\d{4,5}$")
# torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 3, op_id = 7, sizes = [[…]]`.
_EMITTED = re.compile(r", (?:seq = |op_id = |sizes = \[)")
_OPERATOR = re.compile(r"[a-z_]\w*::\w+(?:\.\w+)?$|autograd::|\w+Backward\d*$")


def all_gpu_ops(database: NsysDatabase, names: Names, shapes: Shapes) -> _ProcessOps:
    """All GPU ops with usable times, not yet joined with their calls, and each one's process.

    A graph that was traced as a whole is one op of kind GRAPH, unless its nodes are there too.
    Device, stream and correlation are as in the file: per process.
    """
    nodes = [_kernels(database, names, shapes), _copies(database, names), _fills(database, names)]
    parts = [part for part in (*nodes, _graphs(database, names, nodes)) if len(part[0])]
    nodes.clear()
    if len(parts) == 1:
        ((ops, global_pid),) = parts
        return ops, _process_of(global_pid)
    return (
        GpuOps.concatenate([ops for ops, _ in parts]),
        _process_of(np.concatenate([pid for _, pid in parts] or [np.zeros(0, dtype=np.int64)])),
    )


def _ops(rows: dict[str, Int64s], name: Int32s, kind: int) -> _ProcessOps:
    graph_id, node_id = rows.pop("graphId"), rows.pop("graphNodeId")
    in_graph = node_id > 0
    graph = np.where(graph_id > 0, graph_id, node_id >> 32)
    ops = gpu_ops(
        kind,
        start_ns=rows["start_ns"],
        end_ns=rows["end_ns"],
        name=name,
        device=rows["deviceId"],
        stream=rows["streamId"],
        correlation=rows["correlationId"],
        graph_id=np.where(in_graph, graph, NOT_GIVEN),
        graph_node_id=np.where(in_graph, node_id, NOT_GIVEN),
    )
    return ops, rows["globalPid"]


def _kernels(database: NsysDatabase, names: Names, shapes: Shapes) -> _ProcessOps:
    rows = database.events(KERNEL_TABLE, _PLACE, packed=_SHAPE, first={"name": _KERNEL_NAMES})

    def shape(*packed: int) -> int:
        grid, block, (registers, static, dynamic) = map(unpacked, packed, _SHAPE.values())
        return shapes.of(grid, block, registers, static + dynamic)

    shape_of_each = _of_each(rows, _SHAPE, shape)
    ops, global_pid = _ops(rows, named(database, names, rows.pop("name")), KERNEL)
    return replace(ops, shape=shape_of_each), global_pid


def _of_each(rows: dict[str, Int64s], columns: Iterable[str], number: Callable[..., int]) -> Int32s:
    """`number` of the values of some columns in each row, computed once for equal rows; the columns
    are taken out of `rows`."""
    chosen = [rows.pop(column) for column in columns]
    index = row_numbers(*chosen)
    one = np.empty(index.max(initial=-1) + 1, dtype=np.int64)
    one[index] = np.arange(len(index))
    distinct = zip(*(column[one].tolist() for column in chosen), strict=True)
    return np.array([number(*values) for values in distinct], dtype=np.int32)[index]


def _copies(database: NsysDatabase, names: Names) -> _ProcessOps:
    kinds = ("copyKind", "srcKind", "dstKind")
    rows = database.events(MEMCPY_TABLE, (*_PLACE, *kinds))

    def name(copy: int, source: int, target: int) -> int:
        memories = f"{_word(_MEMORIES, source)} -> {_word(_MEMORIES, target)}"
        return names[f"Memcpy {_word(_COPIES, copy)} ({memories})"]

    return _ops(rows, _of_each(rows, kinds, name), MEMCPY)


def _fills(database: NsysDatabase, names: Names) -> _ProcessOps:
    rows = database.events(MEMSET_TABLE, (*_PLACE, "memKind"))
    name = _of_each(rows, ("memKind",), lambda kind: names[f"Memset ({_word(_MEMORIES, kind)})"])
    return _ops(rows, name, MEMSET)


def _graphs(database: NsysDatabase, names: Names, nodes: Sequence[_ProcessOps]) -> _ProcessOps:
    rows = database.events(GRAPH_TABLE, (*_PLACE, "graphExecId"))
    count = len(rows["start_ns"])
    if count:
        key = row_numbers(
            np.concatenate((rows["globalPid"], *(global_pid for _, global_pid in nodes))),
            np.concatenate((rows["correlationId"], *(ops.correlation for ops, _ in nodes))),
        )
        whole = ~np.isin(key[:count], key[count:])
        rows = {column: values[whole] for column, values in rows.items()}

    def name(number: int) -> int:
        return names[f"CUDA graph {number}" if number >= 0 else "CUDA graph"]

    graph_id = rows["graphId"]
    graphs, global_pid = _ops(rows, _of_each(rows, ("graphExecId",), name), GRAPH)
    return replace(graphs, graph_id=graph_id), global_pid


def named(database: NsysDatabase, names: Names, ids: Int64s) -> Int32s:
    """The interned number of each id's text; an id without a text is `UNNAMED`."""
    distinct = np.unique(ids)
    numbers = np.empty(len(distinct), dtype=np.int32)
    for at in range(0, len(distinct), MAX_IDS):
        some = distinct[at : at + MAX_IDS].tolist()
        texts = database.texts(some)
        numbers[at : at + MAX_IDS] = names.index([texts.get(number) for number in some])
    return numbers[np.searchsorted(distinct, ids)]


def _word(words: Sequence[str], index: int) -> str:
    return words[index] if 0 <= index < len(words) else "Unknown"


def api_calls(database: NsysDatabase, names: Names) -> HostEvents:
    """CUDA runtime and driver calls; their names lose the version (`cudaLaunchKernel_v7000`)."""
    wanted = ("globalTid", "correlationId", "nameId")
    parts = [database.events(table, wanted) for table in _CALL_TABLES]
    rows = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    raw = Names()
    index = named(database, raw, rows["nameId"])
    name = names.index([_VERSION.sub("", text) for text in filter(None, raw)])[index]
    return _host_events(rows, name, rows["correlationId"])


def nvtx_ranges(database: NsysDatabase, names: Names) -> tuple[HostEvents, HostEvents, int]:
    """NVTX ranges of all domains; the operators that PyTorch wrote as NVTX; the number of ranges
    that never ended."""
    ranges = f'"eventType" IN {_RANGE_TYPES}' if database.has(_NVTX_TABLE, "eventType") else "1"
    left_open = f'{ranges} AND "end" IS NULL' if database.has(_NVTX_TABLE, "end") else "0"
    closed = f'{ranges} AND "end" IS NOT NULL' if database.has(_NVTX_TABLE, "end") else ranges
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

    rows = database.events(_NVTX_TABLE, ("globalTid", "textId"), closed, number)
    registered = named(database, names, rows["textId"])
    name = np.where(rows["text"] >= 0, rows["text"].astype(np.int32), registered)
    events = _host_events(rows, name, np.full(len(name), NOT_GIVEN, dtype=np.int64))
    is_operator = np.isin(rows["text"], sorted(operators))
    left = database.count(_NVTX_TABLE, left_open)
    return events.take(~is_operator), events.take(is_operator), left


def _host_events(rows: dict[str, Int64s], name: Int32s, correlation: Int64s) -> HostEvents:
    global_tid = rows["globalTid"]
    return host_events(
        start_ns=rows["start_ns"],
        end_ns=rows["end_ns"],
        name=name,
        pid=_process_of(global_tid),
        tid=np.where(global_tid < 0, NOT_GIVEN, global_tid & 0xFFFFFF),
        correlation=correlation,
    )


def _process_of(global_id: Int64s) -> Int64s:
    """The process inside a serialized global id (hardware 8 bits, VM 8, process 24, thread 24)."""
    return np.where(global_id < 0, NOT_GIVEN, (global_id >> 24) & 0xFFFFFF)
