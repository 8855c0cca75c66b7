"""Puts the traces of several ranks of one run on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import msgspec
import numpy as np

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.readers.ranks.clocks import clock_findings
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.trace import GpuOps, HostEvents, Int64s, OperatorWork, Trace

# From this on (2001) times without a base are wall-clock times themselves, as old Kineto wrote.
_WALL_CLOCK_NS = 10**18
_ID_SHIFT = 32
_HOST_GROUPS = ("calls", "cpu_ops", "ranges")


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """One trace for each rank, by rank, and all of them as one.

    `merged` has one device for each (rank, device) and is None where the traces share no clock;
    `findings` say what is wrong with the set.
    """

    ranks: tuple[tuple[int, Trace], ...]
    merged: Trace | None
    findings: tuple[Finding, ...]


def merge_ranks(traces: Sequence[Trace]) -> Ranks:
    """Number the traces by the rank they name, else by their order, and put them on one clock.

    Time 0 of the merged trace is the earliest base among them. Process ids, correlation ids and
    external ids are raised by 2**32 per rank, so that they stay apart.

    Raises:
        InputError: two traces hold the same events.
    """
    _refuse_copies(traces)
    findings: list[Finding] = []
    numbered = _numbered(traces, findings)
    merged = None
    if _have_one_clock(numbered, findings):
        findings += clock_findings(numbered)
        merged = _merge(numbered, findings)
    return Ranks(tuple(numbered), merged, tuple(findings))


def _refuse_copies(traces: Sequence[Trace]) -> None:
    for index, trace in enumerate(traces):
        for other in traces[:index]:
            if len(trace.ops) and _same_events(trace, other):
                raise InputError(
                    f"{trace.source.path}: the same events as {other.source.path}; "
                    "give one file for each rank"
                )


def _same_events(one: Trace, other: Trace) -> bool:
    return one.base_ns == other.base_ns and all(
        np.array_equal(getattr(one.ops, column), getattr(other.ops, column))
        for column in ("start_ns", "end_ns", "correlation")
    )


def _numbered(traces: Sequence[Trace], findings: list[Finding]) -> list[tuple[int, Trace]]:
    named = [trace.rank for trace in traces]
    known = [rank for rank in named if rank is not None]
    if len(known) == len(traces) and len(set(known)) == len(known):
        return sorted(zip(known, traces, strict=True), key=lambda pair: pair[0])
    if len(set(known)) < len(known):
        text = ", ".join(map(str, sorted({rank for rank in known if known.count(rank) > 1})))
        findings.append(
            Finding("duplicate_ranks", f"several files are of rank {text}; numbered in file order")
        )
    elif known:
        findings.append(
            Finding("missing_ranks", "some files do not name their rank; numbered in file order")
        )
    return list(enumerate(traces))


def _have_one_clock(ranks: Sequence[tuple[int, Trace]], findings: list[Finding]) -> bool:
    """Whether the traces can lie on one clock; `findings` says why not."""
    why = ""
    spans = {rank: _wall_span(trace) for rank, trace in ranks}
    without = [rank for rank, span in spans.items() if span is None]
    known = {rank: span for rank, span in spans.items() if span is not None}
    if any(trace.on_cpu for _, trace in ranks):
        why = "a capture without a GPU is among them"
    elif without:
        why = f"rank {', '.join(map(str, without))} has no time on the wall clock"
    else:
        last = max(known, key=lambda rank: known[rank][0])
        first = min(known, key=lambda rank: known[rank][1])
        apart_ns = known[last][0] - known[first][1]
        if apart_ns >= 0 and len(known) > 1:
            why = f"rank {last} begins {apart_ns / 1e6:.3f} ms after rank {first} ends"
    if why:
        findings.append(Finding("no_common_clock", f"the ranks are not put together: {why}"))
    return not why


def _wall_span(trace: Trace) -> tuple[int, int] | None:
    """First start and last end of all events on the wall clock, None if that is not known."""
    groups = [trace.ops, *(getattr(trace, name) for name in _HOST_GROUPS)]
    groups = [group for group in groups if len(group)]
    if not groups:
        return None
    start = min(int(group.start_ns[0]) for group in groups)
    end = max(int(group.end_ns.max()) for group in groups)
    if trace.base_ns + start < _WALL_CLOCK_NS:
        return None
    return trace.base_ns + start, trace.base_ns + end


def _merge(ranks: Sequence[tuple[int, Trace]], findings: Sequence[Finding]) -> Trace:
    traces = [trace for _, trace in ranks]
    base_ns = min(trace.base_ns for trace in traces)
    names = tuple(sorted({name for trace in traces for name in trace.names}))
    place = {name: index for index, name in enumerate(names)}
    renamed = [np.array([place[name] for name in trace.names], dtype=np.int32) for trace in traces]
    later = [trace.base_ns - base_ns for trace in traces]
    hosts = {group: _hosts(group, traces, later, renamed) for group in _HOST_GROUPS}
    calls, call_order = hosts["calls"]
    devices = _devices(ranks)
    launch_moved = np.empty(len(call_order), dtype=np.int64)
    launch_moved[call_order] = np.arange(len(call_order))
    formats = {trace.source.format for trace in traces}
    return Trace(
        source=Source(
            path=", ".join(trace.source.path for trace in traces),
            format=formats.pop() if len(formats) == 1 else "kineto",
            events=sum(trace.source.events for trace in traces),
        ),
        names=names,
        device_names=_device_names(ranks, devices),
        ops=_ops(ranks, later, renamed, devices, launch_moved),
        calls=calls,
        cpu_ops=hosts["cpu_ops"][0],
        ranges=hosts["ranges"][0],
        findings=(*findings, *_rank_findings(ranks)),
        capture=None,
        base_ns=base_ns,
        work=_work(traces),
    )


def _hosts(
    group: str, traces: Sequence[Trace], later: Sequence[int], renamed: Sequence[np.ndarray]
) -> tuple[HostEvents, Int64s]:
    """One kind of host events of all traces, and in which order they now stand."""
    parts = [
        _host_columns(getattr(trace, group), later[place], renamed[place], place)
        for place, trace in enumerate(traces)
    ]
    columns, order = _in_order(parts, ("start_ns", "-end_ns", "pid", "tid"))
    return HostEvents(**columns), order


def _host_columns(
    events: HostEvents, later_ns: int, name: np.ndarray, place: int
) -> dict[str, Any]:
    return {
        "start_ns": events.start_ns + later_ns,
        "end_ns": events.end_ns + later_ns,
        "name": name[events.name],
        "pid": events.pid + (place << _ID_SHIFT),
        "tid": events.tid,
        "correlation": _apart(events.correlation, place),
        "external_id": _apart(events.external_id, place),
    }


def _apart(ids: Int64s, place: int) -> Int64s:
    return np.where((ids > 0) & (ids < 1 << _ID_SHIFT), ids + (place << _ID_SHIFT), ids)


def _in_order(
    parts: Sequence[dict[str, Any]], keys: Sequence[str]
) -> tuple[dict[str, Any], Int64s]:
    """The parts' columns one after another, sorted by the keys, and that order."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    ties = [-joined[key[1:]] if key.startswith("-") else joined[key] for key in keys]
    order = np.lexsort(tuple(reversed(ties)))
    return {name: column[order] for name, column in joined.items()}, order


def _devices(ranks: Sequence[tuple[int, Trace]]) -> dict[tuple[int, int], int]:
    """(place, device) -> number in the merged trace, of the devices that did anything."""
    used = [
        (place, int(device))
        for place, (_, trace) in enumerate(ranks)
        for device in np.unique(trace.ops.device)
    ]
    return {key: number for number, key in enumerate(used)}


def _ops(
    ranks: Sequence[tuple[int, Trace]],
    later: Sequence[int],
    renamed: Sequence[np.ndarray],
    devices: dict[tuple[int, int], int],
    launch_moved: Int64s,
) -> GpuOps:
    parts: list[dict[str, Any]] = []
    calls_before = 0
    for place, (_, trace) in enumerate(ranks):
        ops = trace.ops
        part = {column.name: getattr(ops, column.name) for column in fields(ops)}
        own, index = np.unique(ops.device, return_inverse=True)
        numbers = np.array([devices[place, int(one)] for one in own], dtype=np.int64)
        linked = ops.launch >= 0
        launch = np.full(len(ops), -1, dtype=np.int64)
        launch[linked] = launch_moved[ops.launch[linked] + calls_before]
        part |= {
            "start_ns": ops.start_ns + later[place],
            "end_ns": ops.end_ns + later[place],
            "name": renamed[place][ops.name],
            "device": numbers[index],
            "correlation": _apart(ops.correlation, place),
            "external_id": _apart(ops.external_id, place),
            "launch": launch,
        }
        parts.append(part)
        calls_before += len(trace.calls)
    columns, _ = _in_order(parts, ("start_ns", "end_ns", "device", "stream"))
    return GpuOps(**columns)


def _device_names(
    ranks: Sequence[tuple[int, Trace]], devices: dict[tuple[int, int], int]
) -> dict[int, str]:
    names = {}
    for (place, device), number in devices.items():
        rank, trace = ranks[place]
        model = trace.device_names.get(device)
        names[number] = (
            f"rank {rank} · {model} (GPU {device})" if model else f"rank {rank} · GPU {device}"
        )
    return names


def _rank_findings(ranks: Sequence[tuple[int, Trace]]) -> list[Finding]:
    return [
        msgspec.structs.replace(finding, message=f"rank {rank}: {finding.message}")
        for rank, trace in ranks
        for finding in trace.findings
    ]


def _work(traces: Sequence[Trace]) -> OperatorWork:
    parts = [
        {
            "external_id": _apart(trace.work.external_id, place),
            "bytes": trace.work.bytes,
            "flops": trace.work.flops,
        }
        for place, trace in enumerate(traces)
    ]
    columns, _ = _in_order(parts, ("external_id",))
    return OperatorWork(**columns)
