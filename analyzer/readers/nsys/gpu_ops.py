"""GPU work of an Nsight Systems export: kernels, copies, fills, and graphs traced as a whole."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.readers.kineto.columns import UNNAMED, Names
from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.timing.row_numbers import row_numbers
from decodescope.analyzer.trace import GRAPH, KERNEL, MEMCPY, MEMSET, GpuOps, Int64s

KERNEL_TABLE = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY_TABLE = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET_TABLE = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH_TABLE = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GPU_TABLES = (KERNEL_TABLE, MEMCPY_TABLE, MEMSET_TABLE, GRAPH_TABLE)
# CUpti_ActivityMemcpyKind and CUpti_ActivityMemoryKind, in the words that libkineto uses.
_COPIES = (
    *("Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP"),
    *("HtoD", "DtoH", "DtoD"),
)
_MEMORIES = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
_KERNEL_NAMES = ("demangledName", "shortName", "mangledName")
_PLACE = ("deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "graphId")
_NO_GRAPH = -1


def gpu_columns(database: NsysDatabase, names: Names) -> dict[str, Int64s]:
    """The columns of `GpuOps` but `launch`, and `global_pid`, of every row with usable times.

    A graph that was traced as a whole is one op of kind GRAPH, unless its nodes are there too.
    Device, stream and correlation are as in the file: per process.
    """
    parts = [
        _kernels(database, names),
        _copies(database, names),
        _fills(database, names),
    ]
    parts.append(_graphs(database, names, parts))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _part(rows: dict[str, Int64s], name: Int64s, kind: int) -> dict[str, Int64s]:
    in_graph = rows["graphNodeId"] > 0
    graph = np.where(rows["graphId"] > 0, rows["graphId"], rows["graphNodeId"] >> 32)
    part = {
        "start_ns": rows["start_ns"],
        "end_ns": rows["end_ns"],
        "name": name,
        "device": rows["deviceId"],
        "stream": rows["streamId"],
        "kind": np.full(len(name), kind, dtype=np.int64),
        "correlation": rows["correlationId"],
        "external_id": np.full(len(name), -1, dtype=np.int64),
        "graph_id": np.where(in_graph, graph, _NO_GRAPH),
        "graph_node_id": np.where(in_graph, rows["graphNodeId"], _NO_GRAPH),
        "global_pid": rows["globalPid"],
    }
    assert set(GpuOps.__slots__) - set(part) == {"launch"}
    return part


def _kernels(database: NsysDatabase, names: Names) -> dict[str, Int64s]:
    rows = database.events(KERNEL_TABLE, (*_PLACE, *_KERNEL_NAMES))
    chosen = rows[_KERNEL_NAMES[-1]]
    for column in reversed(_KERNEL_NAMES[:-1]):
        chosen = np.where(rows[column] > 0, rows[column], chosen)
    return _part(rows, named(database, names, chosen), KERNEL)


def _copies(database: NsysDatabase, names: Names) -> dict[str, Int64s]:
    rows = database.events(MEMCPY_TABLE, (*_PLACE, "copyKind", "srcKind", "dstKind"))
    kinds = (rows["copyKind"], rows["srcKind"], rows["dstKind"])
    _, first, index = np.unique(row_numbers(*kinds), return_index=True, return_inverse=True)
    texts = [
        f"Memcpy {_word(_COPIES, copy)} ({_word(_MEMORIES, source)} -> {_word(_MEMORIES, target)})"
        for copy, source, target in zip(*(kind[first].tolist() for kind in kinds), strict=True)
    ]
    return _part(rows, _interned(names, texts)[index], MEMCPY)


def _fills(database: NsysDatabase, names: Names) -> dict[str, Int64s]:
    rows = database.events(MEMSET_TABLE, (*_PLACE, "memKind"))
    distinct, index = np.unique(rows["memKind"], return_inverse=True)
    texts = [f"Memset ({_word(_MEMORIES, kind)})" for kind in distinct.tolist()]
    return _part(rows, _interned(names, texts)[index], MEMSET)


def _graphs(
    database: NsysDatabase, names: Names, nodes: Sequence[dict[str, Int64s]]
) -> dict[str, Int64s]:
    rows = database.events(GRAPH_TABLE, (*_PLACE, "graphExecId"))
    count = len(rows["start_ns"])
    if count:
        key = row_numbers(
            np.concatenate((rows["globalPid"], *(part["global_pid"] for part in nodes))),
            np.concatenate((rows["correlationId"], *(part["correlation"] for part in nodes))),
        )
        whole = ~np.isin(key[:count], key[count:])
        rows = {column: values[whole] for column, values in rows.items()}
    distinct, index = np.unique(rows["graphExecId"], return_inverse=True)
    texts = [f"CUDA graph {number}" if number >= 0 else "CUDA graph" for number in distinct]
    part = _part(rows, _interned(names, texts)[index], GRAPH)
    return {**part, "graph_id": rows["graphId"]}


def named(database: NsysDatabase, names: Names, ids: Int64s) -> Int64s:
    """The interned index of each id's text; an id without one is called so."""
    distinct, index = np.unique(ids, return_inverse=True)
    texts = database.texts(distinct.tolist())
    table = [texts.get(number) or UNNAMED for number in distinct.tolist()]
    return _interned(names, table)[index]


def _interned(names: Names, texts: Sequence[str]) -> Int64s:
    return np.array([names.of_text(text) for text in texts], dtype=np.int64)


def _word(words: Sequence[str], index: int) -> str:
    return words[index] if 0 <= index < len(words) else "Unknown"
