"""Reads a tree of totals (`.hatchet`) of Proton, Triton's profiler.

Proton adds up the runs of each kernel below each calling context (`proton.start`, whose default is
`data="tree"`), so the file holds no time of a single run. Source: Triton's Proton
(`csrc/lib/Data/TreeData.cpp`). The file is a list of the root and of the devices' properties, as
JSON or as MessagePack. A kernel has the metrics `count` and `time (ns)`; with graph attribution,
kernels of a graph are below the context that captured them, each once.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct, field

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.kineto.event import clean_text
from decodescope.analyzer.readers.trace_columns import LIMIT_NS, Names
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GpuOps, HostEvents, KernelTotals, Trace

# Decoded, a tree takes several times its bytes; Proton's have one node for each context.
_MAX_BYTES = 128 << 20
# What Proton's hooks run to describe a launch.
_METADATA = "__proton_launch_metadata"
_INSTEAD = 'record a timeline: proton.start(data="trace")'


class _Frame(Struct, gc=False):
    name: str = ""


class _Metrics(Struct, gc=False):
    count: Any = 0
    time_ns: Any = field(default=None, name="time (ns)")
    device_id: Any = None
    cycles: Any = None
    samples: Any = field(default=None, name="num_samples")


class _Node(Struct):
    frame: _Frame = field(default_factory=_Frame)
    metrics: _Metrics = field(default_factory=_Metrics)
    children: list["_Node"] = []


_json = msgspec.json.Decoder(list[_Node])
_packed = msgspec.msgpack.Decoder(list[_Node])


def read_hatchet(source: ByteSource) -> Trace:
    """The totals of the kernels in a tree.

    Raises:
        TraceError: it is broken, cut short, or holds no times of kernels.
    """
    data = source.read_all("record a shorter window", _MAX_BYTES)
    decoder = _packed if source.head.startswith(b"\x92") else _json
    try:
        roots = decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "too deep" if isinstance(error, RecursionError) else error
        raise TraceError(
            f"{source.path}: no tree as Proton writes it ({reason}); record it again"
        ) from None
    names, findings = Names(), list[Finding]()
    totals = _totals(roots, names, source, findings)
    findings += names.findings()
    table, moved = names.take_sorted()
    return Trace(
        source=Source(path=source.path, format="proton-hatchet", events=int(totals.count.sum())),
        names=table,
        device_names={},
        ops=GpuOps.concatenate(()),
        calls=HostEvents.concatenate(()),
        cpu_ops=HostEvents.concatenate(()),
        ranges=HostEvents.concatenate(()),
        findings=tuple(findings),
        capture=None,
        base_ns=0,
        totals=KernelTotals(moved[totals.name], totals.count, totals.total_ns),
    )


def _totals(
    roots: list[_Node], names: Names, source: ByteSource, findings: list[Finding]
) -> KernelTotals:
    by_name: dict[int, list[int]] = {}
    dropped, others = 0, set[str]()
    for node in _nodes(roots):
        metrics = node.metrics
        if metrics.device_id is None:
            continue
        if metrics.time_ns is None:
            others |= {"cycles"} if metrics.cycles is not None else {"samples"}
        elif not _is_amount(metrics.count) or not _is_amount(metrics.time_ns):
            dropped += 1
        elif metrics.count:
            total = by_name.setdefault(names[clean_text(node.frame.name)], [0, 0])
            total[0] += metrics.count
            total[1] += metrics.time_ns
            if max(total) > LIMIT_NS:
                raise TraceError(f"{source.path}: counts or times that no run has; record it again")
    if not by_name:
        holds = f"{' and '.join(sorted(others))}, and " if others else ""
        raise TraceError(
            f"{source.path}: a tree of Proton with {holds}no kernel that has time (ns) and count; "
            f"{_INSTEAD}"
        )
    if dropped:
        message = f"{dropped} kernels without a usable count or time were left out"
        findings.append(Finding("dropped_events", message))
    columns = (np.array([*by_name], dtype=np.int32), *np.array([*by_name.values()]).T)
    return KernelTotals(*columns)


def _nodes(roots: list[_Node]) -> Iterator[_Node]:
    """All nodes but those of Proton's own work."""
    waiting = [*reversed(roots)]
    while waiting:
        node = waiting.pop()
        if not node.frame.name.startswith(_METADATA):
            yield node
            waiting += reversed(node.children)


def _is_amount(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LIMIT_NS
