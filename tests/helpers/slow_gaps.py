"""Gaps and their parts, slowly, following the definitions word by word."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter

from tests.helpers.drawn_windows import APIS, Call, Op

Piece = tuple[str, int]
# docs/terms.md, kernel floor.
QUEUED_AHEAD_NS = 50_000


@dataclass(frozen=True)
class SlowGap:
    """`pieces` are (class or "host_wait: label", ns) in the order of time."""

    prev: Op
    next: Op
    pieces: tuple[Piece, ...]

    @property
    def length(self) -> int:
        return self.next.start - self.prev.end

    @property
    def parts(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for name, length in self.pieces:
            kind = name.partition(":")[0]
            sums[kind] = sums.get(kind, 0) + length
        return sums

    @property
    def waits(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for name, length in self.pieces:
            kind, _, label = name.partition(": ")
            if kind == "host_wait":
                sums[label] = sums.get(label, 0) + length
        return sums


def slow_gaps(
    ops: Sequence[Op], calls: list[Call], devices: Collection[int], *, has_floor: bool = True
) -> list[SlowGap]:
    """Every interval in which none of `devices` did anything, and its parts; `has_floor`: the
    timestamps do not hide the kernel floor."""
    launches = {c.correlation: c for c in calls}
    launching = {o.correlation for o in ops} & set(launches)
    floors = {
        device: floor_of(
            [
                (prev, nxt)
                for prev, nxt in idle_of(ops, {device})
                if whole_class(prev, nxt, launches) is None
                and not waited(prev, nxt, launches, calls, launching)
            ],
            launches,
        )
        for device in devices
    }
    found = []
    for prev, nxt in idle_of(ops, devices):
        kind = whole_class(prev, nxt, launches)
        if kind is not None:
            pieces = [(kind, nxt.start - prev.end)]
        else:
            rest = rest_class(
                nxt.start - max(launches[nxt.correlation].end, prev.end),
                floors[nxt.device] if has_floor else None,
                waited(prev, nxt, launches, calls, launching),
            )
            pieces = pieces_of(prev.end, nxt.start, launches[nxt.correlation], calls, rest)
        found.append(SlowGap(prev, nxt, tuple(pieces)))
    return found


def pieces_of(
    start: int, end: int, launch: Call, calls: list[Call], rest: str
) -> list[tuple[str, int]]:
    """The pieces between two times, at none of which anything begins or ends in between."""
    times = {time for c in calls for time in (c.start, c.end) if start < time < end}
    named = [
        (name_at(since, launch, calls, rest), until - since)
        for since, until in pairwise(sorted(times | {start, end}))
    ]
    return [
        (name, sum(length for _, length in same)) for name, same in groupby(named, itemgetter(0))
    ]


def idle_of(ops: Sequence[Op], devices: Collection[int]) -> list[tuple[Op, Op]]:
    """The ops before and after each such interval."""
    mine = sorted(
        (o for o in ops if o.device in devices),
        key=lambda o: (o.start, o.end, o.device, o.stream, o.correlation),
    )
    gaps = []
    latest = mine[0] if mine else None
    for nxt in mine[1:]:
        if nxt.start > latest.end:
            gaps.append((latest, nxt))
        latest = max(nxt, latest, key=lambda o: o.end)
    return gaps


def whole_class(prev: Op, nxt: Op, launches: dict[int, Call]) -> str | None:
    """The class of a gap that is not cut."""
    launch = launches.get(nxt.correlation)
    if launch is None:
        return "unlinked"
    if launch.name == "cudaGraphLaunch" and prev.correlation == nxt.correlation:
        return "graph_internal"
    return None


def name_at(at: int, launch: Call, calls: list[Call], rest: str) -> str:
    """Reason for which the GPU waits at a time, by brute force."""
    if at >= launch.start:
        return "launch_call" if at < launch.end else rest
    doing = {APIS[c.name] for c in calls if c.tid == launch.tid and c.start <= at < c.end}
    for label in ("sync", "allocation", "memcpy_api", "other_api"):
        if label in doing:
            return f"host_wait: {label}"
    return "host_wait: python"


def rest_class(rest_ns: int, floor: int | None, has_waited: bool) -> str:
    if floor is not None and rest_ns <= floor:
        return "kernel_floor"
    return "dependency" if has_waited else "launch_latency"


def floor_of(gaps: list[tuple[Op, Op]], launches: dict[int, Call]) -> int | None:
    lengths = sorted(
        nxt.start - prev.end
        for prev, nxt in gaps
        if prev.end - launches[nxt.correlation].end >= QUEUED_AHEAD_NS
    )
    return lengths[(len(lengths) - 1) // 2] if lengths else None


def waited(
    prev: Op, nxt: Op, launches: dict[int, Call], calls: list[Call], launching: set[int]
) -> bool:
    if (prev.device, prev.stream) != (nxt.device, nxt.stream):
        return True
    launch = launches.get(nxt.correlation)
    for other in sorted(calls, key=lambda c: c.start, reverse=True):
        if launch and other.tid == launch.tid and other.start < launch.start:
            if other.name == "cudaStreamWaitEvent":
                return True
            if other.correlation in launching:
                break
    return False
