"""Host side of an Nsight Systems export: CUDA API calls, NVTX ranges, framework operators."""

import re

import numpy as np

from decodescope.analyzer.readers.columns import NOT_GIVEN, Names
from decodescope.analyzer.readers.nsys.database import NsysDatabase
from decodescope.analyzer.readers.nsys.gpu_ops import named
from decodescope.analyzer.trace import HostEvents, Int32s, Int64s

_CALL_TABLES = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
_NVTX_TABLE = "NVTX_EVENTS"
# NvtxPushPopRange, NvtxStartEndRange, and the same from imported NVTX text files.
_RANGE_TYPES = "(59, 60, 70, 71)"
_VERSION = re.compile(r"_v\d{4,5}$")
# torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 3, op_id = 7, sizes = [[…]]`.
_EMITTED = re.compile(r", (?:seq = |op_id = |sizes = \[)")
_OPERATOR = re.compile(r"[a-z_]\w*::\w+(?:\.\w+)?$|autograd::|\w+Backward\d*$")


def api_calls(database: NsysDatabase, names: Names) -> HostEvents:
    """CUDA runtime and driver calls; their names lose the version (`cudaLaunchKernel_v7000`)."""
    wanted = ("globalTid", "correlationId", "nameId")
    parts = [database.events(table, wanted) for table in _CALL_TABLES]
    rows = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    raw = Names()
    index = named(database, raw, rows["nameId"])
    name = names.index([_VERSION.sub("", text) for text in raw.texts()])[index]
    return _host_events(rows, name, rows["correlationId"])


def nvtx_ranges(database: NsysDatabase, names: Names) -> tuple[HostEvents, HostEvents, int]:
    """NVTX ranges of all domains; the operators that PyTorch wrote as NVTX; the number of ranges
    that never ended."""
    ranges = f'"eventType" IN {_RANGE_TYPES}' if database.has(_NVTX_TABLE, "eventType") else "1"
    left_open = f'{ranges} AND "end" IS NULL' if database.has(_NVTX_TABLE, "end") else "0"
    closed = f'{ranges} AND "end" IS NOT NULL' if database.has(_NVTX_TABLE, "end") else ranges
    texts = _RangeTexts(names)
    rows = database.events(_NVTX_TABLE, ("globalTid", "textId"), closed, texts.index)
    registered = named(database, names, rows["textId"])
    name = np.where(rows["text"] >= 0, rows["text"].astype(np.int32), registered)
    events = _host_events(rows, name, np.full(len(name), NOT_GIVEN, dtype=np.int64))
    is_operator = np.isin(rows["text"], sorted(texts.operators))
    left = database.count(_NVTX_TABLE, left_open)
    return events.take(~is_operator), events.take(is_operator), left


class _RangeTexts:
    """Interns range texts without PyTorch's suffixes; `operators` are the numbers of operators."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.operators: set[int] = set()

    def index(self, text: str) -> int:
        emitted = _EMITTED.search(text)
        if emitted is None:
            return self._names.of_text(text)
        text = text[: emitted.start()]
        index = self._names.of_text(text)
        if _OPERATOR.match(text):
            self.operators.add(index)
        return index


def _host_events(rows: dict[str, Int64s], name: Int32s, correlation: Int64s) -> HostEvents:
    global_tid = rows["globalTid"]
    return HostEvents(
        start_ns=rows["start_ns"],
        end_ns=rows["end_ns"],
        name=name,
        pid=process_of(global_tid),
        tid=np.where(global_tid < 0, NOT_GIVEN, global_tid & 0xFFFFFF),
        correlation=correlation,
        external_id=np.full(len(name), NOT_GIVEN, dtype=np.int64),
    )


def process_of(global_id: Int64s) -> Int64s:
    """The process inside a serialized global id (hardware 8 bits, VM 8, process 24, thread 24)."""
    return np.where(global_id < 0, NOT_GIVEN, (global_id >> 24) & 0xFFFFFF)
