"""Merges the traces of several ranks of one run on one clock."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec
import numpy as np

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.kernel_report import LaunchShape
from decodescope.analyzer.schema.report import Finding, Source
from decodescope.analyzer.text.formatting import duration
from decodescope.analyzer.trace import (
    CollectiveMessage,
    CollectiveMessages,
    GpuOps,
    HostEvents,
    Int32s,
    Int64s,
    OperatorWork,
    Trace,
)

# Later times (since 2001) without a base are wall-clock times, as old Kineto wrote them.
_WALL_CLOCK_NS = 10**18
_ID_SHIFT = 32
_MOST_LISTED = 8
# Ranks start and stop their profilers at nearly the same time.
_LEAST_COMMON = 0.8
_Events = TypeVar("_Events", GpuOps, HostEvents)
_Item = TypeVar("_Item", bound=Hashable)
# Collectives that no rank leaves before every rank has entered.
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The trace of each rank, in order of rank, and all of them merged.

    `merged` has one device for each (rank, device) and is None if the traces share no clock;
    `findings` lists what is wrong with the set.
    """

    ranks: tuple[tuple[int, Trace], ...]
    merged: Trace | None
    findings: tuple[Finding, ...]


def merge_ranks(traces: Sequence[Trace]) -> Ranks:
    """Number the traces by the rank they name, else by their order, and put them on one clock.

    Time 0 of the merged trace is the earliest base among them. Process ids, correlation ids and
    external ids are raised by 2**32 per rank, so that they stay unique.

    Raises:
        InputError: two traces hold the same events.
    """
    refuse_copies(traces)
    findings: list[Finding] = []
    numbered = _numbered(traces, findings)
    if why := _why_apart(numbered):
        findings.append(Finding("no_common_clock", f"the ranks are not merged: {why}"))
        return Ranks(tuple(numbered), None, tuple(findings))
    findings += _clock_findings(numbered)
    findings += _coverage_finding(numbered)
    return Ranks(tuple(numbered), _merge(numbered, findings), tuple(findings))


def refuse_copies(traces: Sequence[Trace]) -> None:
    """Raise `InputError` for two traces that hold the same events."""
    first: dict[bytes, Trace] = {}
    for trace in traces:
        if len(trace.ops):
            digest = blake2b(str(trace.base_ns).encode())
            for column in (trace.ops.start_ns, trace.ops.end_ns, trace.ops.correlation):
                digest.update(column.tobytes())
            other = first.setdefault(digest.digest(), trace)
            if other is not trace:
                raise InputError(
                    f"{trace.source.path}: the same events as {other.source.path}; "
                    "give one file for each rank"
                )


def _numbered(traces: Sequence[Trace], findings: list[Finding]) -> list[tuple[int, Trace]]:
    named = [trace.rank for trace in traces]
    known = [rank for rank in named if rank is not None]
    if len(known) == len(traces) and len(set(known)) == len(known):
        return sorted(zip(known, traces, strict=True), key=lambda pair: pair[0])
    if len(set(known)) < len(known):
        files = Counter(known)
        text = _listed([rank for rank in sorted(files) if files[rank] > 1])
        findings.append(
            Finding("duplicate_ranks", f"several files are of rank {text}; numbered in file order")
        )
    elif known:
        findings.append(
            Finding("missing_ranks", "some files do not name their rank; numbered in file order")
        )
    return list(enumerate(traces))


def _why_apart(ranks: Sequence[tuple[int, Trace]]) -> str:
    """Why the traces cannot be put on one clock; "" if they can."""
    traces = [trace for _, trace in ranks]
    if any(trace.on_cpu for trace in traces) and _own_run(traces)["capture"] is None:
        return "a capture without a GPU is among them, and they are not of one run"
    spans = {rank: _wall_span(trace) for rank, trace in ranks}
    known = {rank: span for rank, span in spans.items() if span is not None}
    if len(known) < len(spans):
        without = _listed([rank for rank in spans if rank not in known])
        return f"rank {without} has no time on the wall clock"
    last = max(known, key=lambda rank: known[rank][0])
    first = min(known, key=lambda rank: known[rank][1])
    apart_ns = known[last][0] - known[first][1]
    if apart_ns < 0 or len(known) == 1:
        return ""
    return f"rank {last} begins {apart_ns / 1e6:.3f} ms after rank {first} ends"


def _listed(ranks: Sequence[int]) -> str:
    """At most `_MOST_LISTED` of the ranks, and how many others there are."""
    others = len(ranks) - _MOST_LISTED
    names = ", ".join(map(str, ranks[:_MOST_LISTED]))
    return f"{names} and {others} more" if others > 0 else names


def _wall_span(trace: Trace) -> tuple[int, int] | None:
    """First start and last end of all events on the wall clock, None if unknown."""
    groups = list(filter(len, (trace.ops, trace.calls, trace.cpu_ops, trace.ranges)))
    if not groups:
        return None
    start = min(int(group.start_ns[0]) for group in groups)
    end = max(int(group.end_ns.max()) for group in groups)
    if trace.base_ns + start < _WALL_CLOCK_NS:
        return None
    return trace.base_ns + start, trace.base_ns + end


def _clock_findings(ranks: Sequence[tuple[int, Trace]]) -> list[Finding]:
    """A finding for each rank with collectives that do not overlap with those of the first rank.

    No rank can end an all-reduce, all-gather or reduce-scatter before every rank of its group has
    begun it. So the same collective on two ranks overlaps in time, unless their clocks differ.
    The k-th collective of one rank is matched with the k-th of the other; ranks with other kinds or
    numbers of collectives are skipped. The clocks differ by at least the largest distance between
    the two intervals of one collective.
    """
    (first, trace), *later_ranks = ranks
    kinds, start_ns, end_ns = _collectives(trace)
    findings = []
    for rank, other in later_ranks:
        other_kinds, other_start_ns, other_end_ns = _collectives(other)
        if other_kinds != kinds or not kinds:
            continue
        apart_ns = np.maximum(other_start_ns - end_ns, start_ns - other_end_ns)
        apart = int(np.count_nonzero(apart_ns > 0))
        if apart:
            findings.append(
                Finding(
                    "clocks_differ",
                    f"{apart} of {len(kinds)} collectives of rank {rank} do not overlap with rank "
                    f"{first}'s: the two clocks differ by at least {apart_ns.max() / 1e6:.3f} ms, "
                    "or the ranks are of different groups or steps; times across them say nothing",
                )
            )
    return findings


def _coverage_finding(ranks: Sequence[tuple[int, Trace]]) -> Iterator[Finding]:
    """A finding if a large part of the time that one rank covers is not covered by all."""
    found = {rank: _wall_span(trace) for rank, trace in ranks}
    spans = {rank: span for rank, span in found.items() if span is not None}
    lengths_ns = {rank: end - start for rank, (start, end) in spans.items()}
    longest = max(lengths_ns, key=lambda rank: lengths_ns[rank])
    shortest = min(lengths_ns, key=lambda rank: lengths_ns[rank])
    common_ns = min(end for _, end in spans.values()) - max(start for start, _ in spans.values())
    if common_ns < _LEAST_COMMON * lengths_ns[longest]:
        yield Finding(
            "unlike_windows",
            f"all ranks cover {duration(common_ns)} together, rank {longest} alone "
            f"{duration(lengths_ns[longest])}, rank {shortest} {duration(lengths_ns[shortest])}: "
            "outside of the common time a rank that is missing was not recorded, and is not idle",
        )


def _collectives(trace: Trace) -> tuple[list[str], Int64s, Int64s]:
    ops = trace.ops.take(trace.by_name(trace.ops.name, _operation))
    kinds = [_operation(trace.names[name]) for name in ops.name.tolist()]
    return kinds, ops.start_ns + trace.base_ns, ops.end_ns + trace.base_ns


def _operation(name: str) -> str:
    meaning = kernel_meaning(name)
    known = meaning.communication == "NCCL/RCCL" and meaning.operation in _COLLECTIVES
    return meaning.operation or "" if known else ""


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One rank's trace and what changes in the merged one: its times are `later_ns` later, its
    calls stand behind `calls_before` others, its `devices` have numbers from `first_device` on.
    `names`, `shapes` and `messages` hold the new number of each name, launch shape and message, and
    -1 behind the last one for none. Process and event ids are raised by `place` * 2**32."""

    rank: int
    trace: Trace
    place: int
    later_ns: int
    calls_before: int
    devices: Int64s
    first_device: int
    names: Int32s
    shapes: Int32s
    messages: Int64s

    def moved(self, events: _Events) -> _Events:
        return replace(
            events,
            start_ns=events.start_ns + self.later_ns,
            end_ns=events.end_ns + self.later_ns,
            name=self.names[events.name],
            correlation=self.apart(events.correlation),
            external_id=self.apart(events.external_id),
        )

    def apart(self, ids: Int64s) -> Int64s:
        return np.where((ids > 0) & (ids < 1 << _ID_SHIFT), ids + (self.place << _ID_SHIFT), ids)

    def device(self, device: Int64s) -> Int64s:
        return self.devices.searchsorted(device) + self.first_device


def _merge(ranks: Sequence[tuple[int, Trace]], findings: Sequence[Finding]) -> Trace:
    traces = [trace for _, trace in ranks]
    base_ns = min(trace.base_ns for trace in traces)
    names = sorted({name for trace in traces for name in trace.names})
    numbers = {name: number for number, name in enumerate(names)}
    shapes: dict[LaunchShape, int] = {}
    messages: dict[CollectiveMessage, int] = {}
    devices: list[tuple[str, str]] = []
    parts: list[_Part] = []
    for place, (rank, trace) in enumerate(ranks):
        own = np.unique(trace.ops.device)
        parts.append(
            _Part(
                rank=rank,
                trace=trace,
                place=place,
                later_ns=trace.base_ns - base_ns,
                calls_before=sum(len(part.trace.calls) for part in parts),
                devices=own,
                first_device=len(devices),
                names=_numbers(numbers, trace.names).astype(np.int32),
                shapes=_numbers(shapes, trace.shapes).astype(np.int32),
                messages=_numbers(messages, trace.message_table),
            )
        )
        for device in own.tolist():
            label = f"rank {rank} cpu" if trace.on_cpu else f"rank {rank} GPU {device}"
            devices.append((label, trace.device_names.get(device, "")))
    calls, call_order = _hosts(parts, "calls")
    rank_findings = [
        msgspec.structs.replace(finding, message=f"rank {rank}: {finding.message}")
        for rank, trace in ranks
        for finding in trace.findings
    ]
    formats = {trace.source.format for trace in traces}
    work = OperatorWork.concatenate(
        [
            replace(part.trace.work, external_id=part.apart(part.trace.work.external_id))
            for part in parts
        ]
    )
    return Trace(
        source=Source(
            path=", ".join(trace.source.path for trace in traces),
            format=formats.pop() if len(formats) == 1 else "kineto",
            events=sum(trace.source.events for trace in traces),
        ),
        names=tuple(names),
        device_names=dict(enumerate(name for _, name in devices)),
        ops=_ops(parts, call_order),
        calls=calls,
        cpu_ops=_hosts(parts, "cpu_ops")[0],
        ranges=_hosts(parts, "ranges")[0],
        findings=(*findings, *rank_findings),
        **_own_run(traces),
        base_ns=base_ns,
        work=work.take(np.argsort(work.external_id, kind="stable")),
        device_labels=dict(enumerate(label for label, _ in devices)),
        shapes=tuple(shapes),
        frames=_hosts(parts, "frames")[0],
        overhead=_hosts(parts, "overhead")[0],
        messages=_messages(parts),
        message_table=tuple(messages),
    )


def _own_run(traces: Sequence[Trace]) -> dict[str, Any]:
    """Rank 0's account of a run of our own, whose ranks all decode the same step: its limits are
    those of each rank, and a graph's ops have the same names on all."""
    captures = [trace.capture for trace in traces]
    first = captures[0]
    if first is None:
        return {"capture": None}
    same = ("device", "model", "variant", "dtype", "batch", "position", "steps")
    for other in captures[1:]:
        if other is None or any(getattr(other, name) != getattr(first, name) for name in same):
            return {"capture": None}
    return {"capture": first, "reference": traces[0].reference}


def _numbers(table: dict[_Item, int], items: Iterable[_Item]) -> Int64s:
    """The number of each item in the table, which grows with new ones, and -1 behind them."""
    return np.array([*(table.setdefault(item, len(table)) for item in items), -1])


def _hosts(parts: Sequence[_Part], column: str) -> tuple[HostEvents, Int64s]:
    """These events of all parts as `Trace` orders them, and their order in the concatenated
    parts."""
    moved = []
    for part in parts:
        own: HostEvents = getattr(part.trace, column)
        moved.append(replace(part.moved(own), pid=own.pid + (part.place << _ID_SHIFT)))
    joined = HostEvents.concatenate(moved)
    order = np.lexsort((joined.tid, joined.pid, -joined.end_ns, joined.start_ns))
    return joined.take(order), order


def _ops(parts: Sequence[_Part], call_order: Int64s) -> GpuOps:
    new_row = np.append(np.argsort(call_order), -1)
    moved = []
    for part in parts:
        ops = part.trace.ops
        launch = np.where(ops.launch >= 0, ops.launch + part.calls_before, -1)
        own = replace(part.moved(ops), launch=new_row[launch], shape=part.shapes[ops.shape])
        moved.append(replace(own, device=part.device(ops.device)))
    joined = GpuOps.concatenate(moved)
    keys = (joined.stream, joined.device, joined.end_ns, joined.start_ns)
    return joined.take(np.lexsort(keys))


def _messages(parts: Sequence[_Part]) -> CollectiveMessages:
    moved = []
    for part in parts:
        own = part.trace.messages
        start_ns, device = own.start_ns + part.later_ns, part.device(own.device)
        moved.append(CollectiveMessages(start_ns, device, own.stream, part.messages[own.message]))
    joined = CollectiveMessages.concatenate(moved)
    return joined.take(np.lexsort((joined.stream, joined.device, joined.start_ns)))
