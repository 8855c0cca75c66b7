"""The parts of a step: where its time goes, to the nanosecond, and how little each could take.

The time of a step, without interruptions, is cut into attributed time of its ops by role (of ops
without a known role by family) and idle time by class. Under the profiler of our own captures a
step takes longer than without it: that cost is a part of its own, taken from the host's idle time
as far as there is any.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.names.rules import FAMILIES, ROLES
from decodescope.analyzer.roofline.roofline import Costs, Limit, LimitedWork, OpWork
from decodescope.analyzer.schema.answer import AnswerPart, Bound, PartGroup
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.schema.step_report import Confidence, LayerReport, StructureReport
from decodescope.analyzer.structure.step_structure import OTHER, Structure
from decodescope.analyzer.timing.attributed_time import attributed_in
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    without_interruptions,
)
from decodescope.analyzer.timing.intervals import covered_inside
from decodescope.analyzer.timing.step_annotations import StepAnnotation
from decodescope.analyzer.timing.timeline import Timeline, families_of, idle_inside
from decodescope.analyzer.trace import MEMCPY, MEMSET, Bools, Int64s, Intervals

HOST_CLASSES = ("host_wait", "launch_call", "launch_latency", "unlinked")
PROFILER = "profiler"
# By the numbers of `Structure.confidence`.
_CONFIDENCES: tuple[Confidence, ...] = ("exact", "partial", "none")
# Copies and fills that no kernel makes; kernels that copy have the role "copy".
_MEMCPY = "memcpy"
# Ops without a known role count by their family.
WORK = (*dict.fromkeys((*ROLES, *FAMILIES)), _MEMCPY)
_KNOWN_ROLES = tuple(role for role in ROLES if role != ROLES[OTHER])
_OF_FAMILY = np.array([WORK.index(family) for family in FAMILIES])
_GROUPS: dict[str, PartGroup] = {
    **dict.fromkeys(HOST_CLASSES, "host"),
    "communication": "communication",
    _MEMCPY: "copies",
    PROFILER: "profiler",
}


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The time that parts are of: `pieces` of a step on its `devices`; without a step, of the whole
    trace on all devices."""

    step: int | None
    devices: tuple[int, ...]
    pieces: Intervals

    @property
    def length_ns(self) -> int:
        return int(self.pieces.length_ns.sum())


@dataclass(frozen=True, slots=True, eq=False)
class OpShares:
    """The ops `rows` that run in `window`: the attributed time of each in it, and its part, an
    index in `WORK`. `own` are the ops of the window's step."""

    window: Window
    rows: Int64s
    ns: Int64s
    part: Int64s
    own: Bools


@dataclass(frozen=True, slots=True, eq=False)
class FoundTrace(Timeline):
    """A timeline with the ranges, the structure and the work of its ops, its interruptions, for how
    long each step was interrupted, and the steps of the main kind. `own_ranges` are those of the
    trace, without inferred paths."""

    own_ranges: Ranges
    ranges: Ranges
    structure: Structure
    work: OpWork
    interruptions: tuple[Interruption, ...]
    interrupted_ns: Int64s
    main_kind_indices: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class MedianStep:
    """The `step` that stands for a trace (None without one), with what is known of it before its
    costs: the attributed time of each op, its reports, its busy parts, and its annotation."""

    timeline: FoundTrace
    step: int | None
    shares: OpShares | None
    report: StructureReport
    layers: tuple[LayerReport, ...]
    parts: tuple[AnswerPart, ...]
    annotation: StepAnnotation


def window_of(
    timeline: Timeline, step: int | None, interruptions: Sequence[Interruption]
) -> Window:
    """The time of a step, or of the whole trace, without interruptions. The trace has ops."""
    if step is None:
        devices = tuple(timeline.busy)
        start_ns = min(int(busy.start_ns[0]) for busy in timeline.busy.values())
        end_ns = max(int(busy.end_ns[-1]) for busy in timeline.busy.values())
    else:
        devices = timeline.steps.devices[step]
        start_ns = int(timeline.steps.span.start_ns[step])
        end_ns = start_ns + int(timeline.steps.time_ns[step])
    pieces = without_interruptions(interruptions, devices, start_ns, end_ns)
    return Window(step, devices, pieces)


def op_parts(timeline: Timeline, structure: Structure, rows: Int64s) -> Int64s:
    """The part of each of the ops `rows`, an index in `WORK`."""
    ops = timeline.trace.ops.take(rows)
    role = structure.role[rows].astype(np.int64)
    family = _OF_FAMILY[families_of(timeline.trace.names, ops)]
    part = np.where(role == OTHER, family, role)
    by_driver = np.isin(ops.kind, (MEMCPY, MEMSET))
    part[by_driver & (part != WORK.index("communication"))] = WORK.index(_MEMCPY)
    return part


def op_shares(timeline: Timeline, structure: Structure, window: Window) -> OpShares:
    """Every op that runs on the window's devices during it, also one of another step."""
    ops, pieces = timeline.trace.ops, window.pieces
    rows = np.arange(len(ops))
    if len(pieces):
        meets = (ops.start_ns <= pieces.end_ns[-1]) & (ops.end_ns >= pieces.start_ns[0])
        rows = np.flatnonzero(meets)
    rows = rows[np.isin(ops.device[rows], window.devices)]
    return OpShares(
        window=window,
        rows=rows,
        ns=attributed_in(timeline.trace, rows, pieces),
        part=op_parts(timeline, structure, rows),
        own=np.isin(timeline.steps.op_step[rows], -1 if window.step is None else window.step),
    )


def longest_of_part(
    timeline: Timeline, structure: Structure, window: Window, part: str
) -> tuple[Literal["op", "gap"], int] | None:
    """The row of the op with most attributed time in the window among those of a `part`, or of the
    gap with most idle time of that class; None if the window has neither."""
    if part in GAP_CLASSES:
        of_device = np.isin(timeline.gaps.device[timeline.parts.gap], window.devices)
        idle = timeline.parts.take(of_device & (timeline.parts.kind == GAP_CLASSES.index(part)))
        rows, ns = idle.gap, covered_inside(window.pieces, idle)
    elif part in WORK:
        shares = op_shares(timeline, structure, window)
        of_part = shares.part == WORK.index(part)
        rows, ns = shares.rows[of_part], shares.ns[of_part]
    else:
        return None
    if not ns.any():
        return None
    return "gap" if part in GAP_CLASSES else "op", int(rows[ns.argmax()])


def idle_ns(timeline: Timeline, window: Window) -> dict[str, int]:
    """The idle time of each class in the window, in the order of `GAP_CLASSES`."""
    inside_ns = idle_inside(timeline.idle_of(window.devices), window.pieces).sum(axis=0)
    return dict(zip(GAP_CLASSES, inside_ns.tolist(), strict=True))


def part_times_ns(found: FoundTrace, step: int) -> dict[str, int]:
    """The time of each part in a step, as in its answer; the profiler's cost is in the host's
    classes."""
    window = window_of(found, step, found.interruptions)
    shares = op_shares(found, found.structure, window)
    busy_ns = np.zeros(len(WORK), dtype=np.int64)
    np.add.at(busy_ns, shares.part, shares.ns)
    times_ns = dict(zip(WORK, busy_ns.tolist(), strict=True)) | idle_ns(found, window)
    return {part: ns for part, ns in times_ns.items() if ns}


def without_profiler(idle: dict[str, int], cost_ns: int) -> dict[str, int]:
    """The idle time by class with the `cost_ns` of the profiler taken from the host's classes, in
    proportion, as a class of its own; no more than these have."""
    late_ns = sum(idle[name] for name in HOST_CLASSES)
    cost_ns = min(max(cost_ns, 0), late_ns)
    if not cost_ns:
        return idle
    left, left_ns = dict(idle), cost_ns
    for name in filter(idle.get, HOST_CLASSES):
        taken_ns = left_ns * idle[name] // late_ns
        left[name] -= taken_ns
        left_ns -= taken_ns
        late_ns -= idle[name]
    return {**left, PROFILER: cost_ns}


def limits_of(costs: Costs) -> dict[str, Limit]:
    """The limit of each part, where it is known. By a model, that of a role without work is 0, and
    that of copies by the driver. The ops of a part by family may do the work of any role: that part
    has no limit."""
    known = {part: work.limit for part, work in costs.parts.items() if work.limit is not None}
    roles = (*_KNOWN_ROLES, _MEMCPY) if costs.step and known else ()
    return dict.fromkeys(roles, Limit(0, "memory")) | known


def busy_parts(
    timeline: Timeline, structure: Structure, shares: OpShares
) -> tuple[AnswerPart, ...]:
    """The parts of the ops, without their work and limits."""
    busy_ns, ops, known = np.zeros((3, len(WORK)), dtype=np.int64)
    np.add.at(busy_ns, shares.part, shares.ns)
    np.add.at(ops, shares.part, shares.own)
    np.maximum.at(known, shares.part[shares.own], structure.confidence[shares.rows[shares.own]])
    whole_ns = shares.window.length_ns
    return tuple(
        AnswerPart(
            part=WORK[number],
            group=_GROUPS.get(WORK[number], "kernels"),
            ns=int(busy_ns[number]),
            limit_ns=None,
            over_ns=None,
            share=int(busy_ns[number]) / whole_ns if whole_ns else 0.0,
            ops=int(ops[number]),
            kernel=kernel,
            confidence=_CONFIDENCES[known[number]],
        )
        for number, kernel in _longest_kernels(timeline, shares).items()
    )


def all_parts(
    busy: Iterable[AnswerPart], idle: Mapping[str, int], costs: Costs, whole_ns: int
) -> tuple[AnswerPart, ...]:
    """The busy parts with their work and limits, and the idle ones that take time, in order of the
    time over the limit; the profiler's is the last."""
    limits = limits_of(costs)
    parts = [_with_work(part, costs.parts.get(part.part), limits.get(part.part)) for part in busy]
    parts += [
        AnswerPart(name, _GROUPS.get(name, "kernels"), ns, None, ns, ns / whole_ns)
        for name, ns in idle.items()
        if ns
    ]
    return tuple(sorted(parts, key=_order))


def lost_by_group(parts: Iterable[AnswerPart]) -> dict[Bound, int]:
    """The time over the limit of each group that can be the bound of a step, in ns."""
    lost_ns: dict[Bound, int] = dict.fromkeys(("kernels", "host", "communication", "copies"), 0)
    for part in parts:
        if part.group != "profiler":
            lost_ns[part.group] += part.lost_ns
    return lost_ns


def _order(part: AnswerPart) -> tuple[bool, int, str]:
    return part.group == PROFILER, -part.lost_ns, part.part


def _with_work(part: AnswerPart, work: LimitedWork | None, limit: Limit | None) -> AnswerPart:
    if work is not None:
        part = replace(part, bytes=work.bytes, flops=work.flops)
    if limit is None:
        return part
    return replace(part, limit_ns=limit.ns, over_ns=part.ns - limit.ns, limit_bound=limit.bound)


def _longest_kernels(timeline: Timeline, shares: OpShares) -> dict[int, str]:
    """The name of the kernel that takes most of each part, by the part's number."""
    names, name = np.unique(timeline.trace.ops.name[shares.rows], return_inverse=True)
    key = shares.part * max(len(names), 1) + name
    keys, place = np.unique(key, return_inverse=True)
    time_ns = np.zeros(len(keys), dtype=np.int64)
    np.add.at(time_ns, place, shares.ns)
    part = keys // max(len(names), 1)
    order = np.lexsort((-time_ns, part))
    numbers, first = np.unique(part[order], return_index=True)
    longest = names[keys[order[first]] % max(len(names), 1)]
    return dict(
        zip(
            numbers.tolist(),
            (timeline.trace.names[name_index] for name_index in longest.tolist()),
            strict=True,
        )
    )
