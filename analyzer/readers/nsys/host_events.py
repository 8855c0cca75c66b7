"""Host side of an Nsight Systems export: CUDA API calls, NVTX ranges, framework operators."""

import re

import numpy as np

from decodescope.analyzer.readers.kineto.columns import UNNAMED, Names
from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.readers.nsys.gpu_ops import named
from decodescope.analyzer.trace import Int64s

CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
NVTX_TABLE = "NVTX_EVENTS"
# NvtxPushPopRange, NvtxStartEndRange and the same of imported NVTX text files.
_RANGE_TYPES = "(59, 60, 70, 71)"
_VERSION = re.compile(r"_v\d{4,5}$")
# torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 3, op_id = 7, sizes = [[…]]`.
_EMITTED = re.compile(r", (?:seq = |op_id = |sizes = \[)")
_OPERATOR = re.compile(r"[a-z_]\w*::\w+(?:\.\w+)?$|autograd::|\w+Backward\d*$")


def call_columns(database: NsysDatabase, names: Names) -> dict[str, Int64s]:
    """CUDA runtime and driver calls; their names lose the version (`cudaLaunchKernel_v7000`)."""
    wanted = ("globalTid", "correlationId", "nameId")
    parts = [database.events(table, wanted) for table in CALL_TABLES]
    rows = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    raw = Names()
    index = named(database, raw, rows["nameId"])
    texts = [names.of_text(_VERSION.sub("", text)) for text in raw.texts()]
    name = np.array(texts, dtype=np.int64)[index]
    return _host_columns(rows, name, rows["globalTid"], rows["correlationId"])


def range_columns(
    database: NsysDatabase, names: Names
) -> tuple[dict[str, Int64s], dict[str, Int64s], int]:
    """NVTX ranges of all domains; the operators that PyTorch wrote as NVTX; ranges left open."""
    ranges = f'"eventType" IN {_RANGE_TYPES}' if database.has(NVTX_TABLE, "eventType") else "1"
    left_open = f'{ranges} AND "end" IS NULL' if database.has(NVTX_TABLE, "end") else "0"
    closed = f'{ranges} AND "end" IS NOT NULL' if database.has(NVTX_TABLE, "end") else ranges
    texts = _RangeTexts(names)
    rows = database.events(NVTX_TABLE, ("globalTid", "textId"), closed, texts.index)
    registered = named(database, names, rows["textId"])
    name = np.where(rows["text"] >= 0, rows["text"], registered)
    columns = _host_columns(rows, name, rows["globalTid"], np.full(len(name), -1, dtype=np.int64))
    is_operator = np.isin(rows["text"], sorted(texts.operators))
    operators = {key: values[is_operator] for key, values in columns.items()}
    others = {key: values[~is_operator] for key, values in columns.items()}
    return others, operators, database.count(NVTX_TABLE, left_open)


class _RangeTexts:
    """Interns range texts without what PyTorch appends; `operators` are the indices of its own."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.operators: set[int] = set()

    def index(self, text: str) -> int:
        emitted = _EMITTED.search(text)
        if emitted is None:
            return self._names.of_text(text)
        text = text[: emitted.start()] or UNNAMED
        index = self._names.of_text(text)
        if _OPERATOR.match(text):
            self.operators.add(index)
        return index


def _host_columns(
    rows: dict[str, Int64s], name: Int64s, global_tid: Int64s, correlation: Int64s
) -> dict[str, Int64s]:
    return {
        "start_ns": rows["start_ns"],
        "end_ns": rows["end_ns"],
        "name": name,
        "pid": process_of(global_tid),
        "tid": np.where(global_tid < 0, -1, global_tid & 0xFFFFFF),
        "correlation": correlation,
        "external_id": np.full(len(name), -1, dtype=np.int64),
    }


def process_of(global_id: Int64s) -> Int64s:
    """The process inside a serialized global id (hardware 8 bits, VM 8, process 24, thread 24)."""
    return np.where(global_id < 0, -1, (global_id >> 24) & 0xFFFFFF)
