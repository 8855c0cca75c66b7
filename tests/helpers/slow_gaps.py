"""Gaps and their classes, slowly, following the definitions word by word."""

from collections.abc import Collection
from dataclasses import dataclass

from decodescope.analyzer.timing.gaps import HOST_WAIT_LABELS
from tests.helpers.drawn_windows import APIS, US, Call, Op


@dataclass(frozen=True)
class SlowGap:
    prev: Op
    next: Op
    kind: str
    label: str

    @property
    def length(self) -> int:
        return self.next.start - self.prev.end


def slow_gaps(ops: list[Op], calls: list[Call], devices: Collection[int]) -> list[SlowGap]:
    """Every interval in which none of `devices` did anything, and its class."""
    launches = {c.correlation: c for c in calls}
    launching = {o.correlation for o in ops} & set(launches)
    floors = {}
    for device in devices:
        alone = [
            (prev, nxt)
            for prev, nxt in idle_of(ops, {device})
            if early_class(prev, nxt, launches) is None
            and class_of(prev, nxt, launches, None, calls, launching) != "dependency"
        ]
        floors[device] = floor_of(alone, launches)
    found = []
    for prev, nxt in idle_of(ops, devices):
        kind = class_of(prev, nxt, launches, floors[nxt.device], calls, launching)
        label = ""
        if kind == "host_wait":
            label = label_of(prev.end, launches[nxt.correlation], calls)
        found.append(SlowGap(prev, nxt, kind, label))
    return found


def idle_of(ops: list[Op], devices: Collection[int]) -> list[tuple[Op, Op]]:
    """The ops before and after each such interval."""
    mine = sorted(
        (o for o in ops if o.device in devices),
        key=lambda o: (o.start, o.end, o.device, o.stream, o.correlation),
    )
    gaps = []
    for position in range(1, len(mine)):
        before = mine[:position]
        end_of_busy = max(o.end for o in before)
        if mine[position].start > end_of_busy:
            prev = [o for o in before if o.end == end_of_busy][-1]
            gaps.append((prev, mine[position]))
    return gaps


def early_class(prev: Op, nxt: Op, launches: dict[int, Call]) -> str | None:
    launch = launches.get(nxt.correlation)
    if launch is None:
        return "unlinked"
    if launch.name == "cudaGraphLaunch" and prev.correlation == nxt.correlation:
        return "graph_internal"
    return "host_wait" if launch.start > prev.end else None


def floor_of(gaps: list[tuple[Op, Op]], launches: dict[int, Call]) -> int | None:
    lengths = sorted(
        nxt.start - prev.end
        for prev, nxt in gaps
        if prev.end - launches[nxt.correlation].end >= 50 * US
    )
    return lengths[(len(lengths) - 1) // 2] if lengths else None


def class_of(
    prev: Op,
    nxt: Op,
    launches: dict[int, Call],
    floor: int | None,
    calls: list[Call],
    launching: set[int],
) -> str:
    early = early_class(prev, nxt, launches)
    if early is not None:
        return early
    launch = launches[nxt.correlation]
    if launch.end <= prev.end and floor is not None and nxt.start - prev.end <= floor:
        return "kernel_floor"
    if (prev.device, prev.stream) != (nxt.device, nxt.stream):
        return "dependency"
    for other in sorted(calls, key=lambda c: c.start, reverse=True):
        if other.tid == launch.tid and other.start < launch.start:
            if other.name == "cudaStreamWaitEvent":
                return "dependency"
            if other.correlation in launching:
                break
    return "launch_latency"


def label_of(start: int, launch: Call, calls: list[Call]) -> str:
    covered = dict.fromkeys(HOST_WAIT_LABELS[:-1], 0)
    for at in range(start, launch.start, US):
        doing = {APIS[c.name] for c in calls if c.tid == launch.tid and c.start <= at < c.end}
        for label in covered:
            covered[label] += label in doing
    best = max(covered, key=lambda label: covered[label])
    return best if 2 * covered[best] * US >= launch.start - start else "python"
