"""Joins the kernels of a trace with those that Nsight Compute counted, and explains differences.

Both sides have the same three steps; a figure of a kernel is the median of its three launches. A
difference is explained only by figures of the same record, in this order:

- steps: ncu's duration is within the traced steps' own range, with `TOLERANCE` on both sides.
- interval: it is, once the probes' offset is taken off. ncu begins its interval before the launch
  is processed and ends it after a wait; the offset is what that adds to a kernel that does nothing.
- clock: it is, once it is also scaled by the SM clock under ncu ÷ that of the trace (the probes').
- launch and wait: the trace's duration is at least the time that an SM was busy under ncu, and at
  most ncu's duration. So the difference is time without a warp on that SM: launch and wait take
  longer than those of a kernel that does nothing.

A kernel is slower under ncu if an SM was busy there for longer than all of the traced duration:
then no choice of the interval's ends makes both equal. This locates the difference; it does not
name its cause.

Bytes from and to DRAM are explained likewise:

- background: they differ by no more than what the empty probes moved.
- L2: fewer came from DRAM, and the SMs moved at least the claimed bytes from and to L2.
- written back: DRAM was read for no more than the claimed bytes. The rest are writes: L2 writes a
  line when it needs its place, so they may be of whatever wrote to L2 before.
- not data: the SMs moved only the claimed bytes from and to L2, to a sector. The rest was moved for
  other units, as for instructions and constants.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.counters.counted_step import (
    EMPTY_PROBES,
    MIDDLE_STEP,
    PROBE_CYCLES,
    PROBE_KERNEL,
    SPIN_CYCLES,
    WINDOW,
)
from benchmarks.counters.ncu_report import SECTOR_BYTES, Counted, Extent
from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.roofline.roofline import UNKNOWN
from decodescope.analyzer.trace import KERNEL

TOLERANCE = 0.02
WITHIN, SLOWER, NOT_EXPLAINED = "within 2 %", "slower under ncu", "not explained"
# Figures of a kernel that differ from launch to launch.
_MEASURED = ("duration_ns", "busy_ns", "read_bytes", "written_bytes", "l2_bytes", "sm_hz")


class Traced(Struct, frozen=True):
    """One kernel of the traced steps: its duration in each of them, how long the GPU was idle
    before it (median of the steps), and the bytes of the operator that it did the work of, if the
    trace says."""

    name: str
    grid: Extent | None
    block: Extent | None
    ns: tuple[int, ...]
    idle_before_ns: float
    bytes: int | None

    @property
    def median_ns(self) -> float:
        """The median of the steps' durations."""
        return median(self.ns)


class TracedStep(Struct, frozen=True):
    """The kernels of a step in their order, and how many copies and fills, which ncu does not
    count."""

    kernels: tuple[Traced, ...]
    copies: int


class CountedKernel(Struct, frozen=True):
    """One kernel of the counted steps: the median of each figure over its launches, with the most
    passes and the middle step's launch shape, and the range of its duration."""

    median: Counted
    min_ns: float
    max_ns: float

    @classmethod
    def of(cls, launches: Sequence[Counted]) -> "CountedKernel":
        """From its launch in each step."""
        medians = {name: median(getattr(one, name) for one in launches) for name in _MEASURED}
        durations_ns = [one.duration_ns for one in launches]
        return cls(
            replace(launches[MIDDLE_STEP], **medians, passes=max(one.passes for one in launches)),
            min(durations_ns),
            max(durations_ns),
        )


class Probes(Struct, frozen=True):
    """What the probes show. `offset_ns` is the median of ncu's duration - the trace's of a kernel
    that does nothing, `offset_spread_ns` the largest distance of its p10 and p90 from it. The SM
    clocks are those of the long probe; `background_bytes` is the most that an empty one moved from
    and to DRAM."""

    trace_ns: tuple[float, ...]
    ncu_ns: tuple[float, ...]
    offset_ns: float
    offset_spread_ns: float
    trace_sm_hz: float
    ncu_sm_hz: float
    background_bytes: float


class KernelRow(Struct, frozen=True, array_like=True):
    """One kernel of the step on both sides: in JSON an array of these figures, in this order.

    `name` indexes the record's names. Figures without `min` and `max` are medians of the steps;
    `idle_before_ns` is the time without a kernel or copy before it in the trace.
    """

    name: int
    trace_ns: float
    trace_min_ns: float
    trace_max_ns: float
    idle_before_ns: float
    ncu_ns: float
    ncu_min_ns: float
    ncu_max_ns: float
    ncu_busy_ns: float
    trace_over_ncu: float
    why: str
    ncu_sm_hz: float
    claimed_bytes: int | None
    dram_read_bytes: float
    dram_written_bytes: float
    l2_bytes: float
    why_bytes: str | None

    @property
    def dram_bytes(self) -> float:
        """Bytes from and to DRAM."""
        return self.dram_read_bytes + self.dram_written_bytes


class Joined(Struct, frozen=True):
    """Every kernel of the step in its order, the distinct names, the probes, and the most passes
    that ncu took over a kernel; above 1, L2 held what the pass before had read."""

    names: tuple[str, ...]
    rows: tuple[KernelRow, ...]
    probes: Probes
    passes: int


def traced_step(path: Path) -> TracedStep:
    """The kernels of the steps in a trace file, in the order of their starts.

    Raises:
        InputError: not as many steps as were traced, or the steps ran different kernels.
        TraceError: as `load`.
    """
    analysis = analyze(load(path))
    trace, step = analysis.trace, analysis.steps.op_step
    if len(analysis.steps) != WINDOW.steps:
        raise InputError(f"the trace has {len(analysis.steps)} steps, not {WINDOW.steps}")
    is_kernel = trace.ops.kind == KERNEL
    rows = [np.flatnonzero((step == one) & is_kernel) for one in range(WINDOW.steps)]
    launched = [
        list(zip(trace.ops.name[mine].tolist(), trace.ops.shape[mine].tolist(), strict=True))
        for mine in rows
    ]
    names = [[name for name, _ in one] for one in launched]
    if any(one != names[MIDDLE_STEP] for one in names):
        counts = ", ".join(str(len(one)) for one in names)
        raise InputError(f"the traced steps ran different kernels ({counts} of them)")
    shapes = [trace.shapes[shape] if shape >= 0 else None for _, shape in launched[MIDDLE_STEP]]
    times = np.stack([trace.ops.length_ns[mine] for mine in rows], axis=1).tolist()
    ended = np.maximum.accumulate(trace.ops.end_ns)
    idle = np.maximum(trace.ops.start_ns[1:] - ended[:-1], 0)
    # The first operation of all has none before it.
    idle = np.concatenate(([0], idle))
    idles = np.median([idle[mine] for mine in rows], axis=0).tolist()
    work = analysis.work.bytes[rows[MIDDLE_STEP]].tolist()
    kernels = tuple(
        Traced(
            trace.names[name],
            shape.grid if shape else None,
            shape.block if shape else None,
            tuple(ns),
            idle_ns,
            None if moved == UNKNOWN else moved,
        )
        for name, shape, ns, idle_ns, moved in zip(
            names[MIDDLE_STEP], shapes, times, idles, work, strict=True
        )
    )
    return TracedStep(kernels, int(((step == MIDDLE_STEP) & ~is_kernel).sum()))


def counted_kernels(counted: Sequence[Counted]) -> tuple[CountedKernel, ...]:
    """The kernels of the counted steps, from all of their launches.

    A launch shape may differ between steps: that of a copy of the KV cache grows with it.

    Raises:
        InputError: the steps ran different kernels.
    """
    size = len(counted) // WINDOW.steps
    steps = [counted[size * step : size * (step + 1)] for step in range(WINDOW.steps)]
    names = [[one.function for one in step] for step in steps]
    if len(counted) % WINDOW.steps or any(one != names[MIDDLE_STEP] for one in names):
        raise InputError(
            f"the {WINDOW.steps} steps under ncu ran different kernels ({len(counted)} launches)"
        )
    return tuple(map(CountedKernel.of, zip(*steps, strict=True)))


def joined(
    traced: Sequence[Traced], counted: Sequence[CountedKernel], claims: Sequence[int] | None
) -> Joined:
    """The kernels of both sides, one by one; `claims` are the bytes of the step's kernels, None if
    only the trace may know them.

    Raises:
        InputError: the two sides do not have the same kernels in the same order, with the probes
            at the end, or `claims` are not one for each.
    """
    medians = [one.median for one in counted]
    _require_same(traced, medians)
    first = len(traced) - len(PROBE_CYCLES)
    if first <= 0 or any(PROBE_KERNEL not in one.name for one in traced[first:]):
        raise InputError(f"the step does not end with {len(PROBE_CYCLES)} probes ({PROBE_KERNEL})")
    if claims is not None and len(claims) != first:
        raise InputError(f"the step claims bytes of {len(claims)} kernels, but ran {first}")
    probes = probes_of(traced[first:], medians[first:])
    bytes_of = [one.bytes for one in traced[:first]] if claims is None else claims
    names = tuple(dict.fromkeys(one.name for one in traced[:first]))
    number = {name: index for index, name in enumerate(names)}
    sides = zip(traced[:first], counted[:first], bytes_of, strict=True)
    rows = tuple(_row(number[one.name], one, other, moved, probes) for one, other, moved in sides)
    return Joined(names, rows, probes, max(one.passes for one in medians))


def probes_of(traced: Sequence[Traced], counted: Sequence[Counted]) -> Probes:
    """What the probes at the end of the step show."""
    trace_ns = tuple(one.median_ns for one in traced[:EMPTY_PROBES])
    ncu_ns = tuple(one.duration_ns for one in counted[:EMPTY_PROBES])
    offsets = np.subtract(ncu_ns, trace_ns)
    low, offset, high = np.percentile(offsets, (10, 50, 90)).tolist()
    return Probes(
        trace_ns,
        ncu_ns,
        offset,
        max(high - offset, offset - low),
        SPIN_CYCLES * 1e9 / traced[-1].median_ns,
        SPIN_CYCLES * 1e9 / counted[-1].duration_ns,
        max(one.read_bytes + one.written_bytes for one in counted[:EMPTY_PROBES]),
    )


def why_time(traced: Traced, counted: Counted, probes: Probes) -> str:
    """Why ncu's duration differs from the trace's, as this module says."""
    trace_ns, ncu_ns = traced.median_ns, counted.duration_ns
    if abs(ncu_ns - trace_ns) <= TOLERANCE * trace_ns:
        return WITHIN
    if (1 - TOLERANCE) * min(traced.ns) <= ncu_ns <= (1 + TOLERANCE) * max(traced.ns):
        return "steps"
    low = min((1 - TOLERANCE) * min(traced.ns), min(traced.ns) - probes.offset_spread_ns)
    high = max((1 + TOLERANCE) * max(traced.ns), max(traced.ns) + probes.offset_spread_ns)
    inside_ns = ncu_ns - probes.offset_ns
    if low <= inside_ns <= high:
        return "interval"
    if low <= inside_ns * probes.ncu_sm_hz / probes.trace_sm_hz <= high:
        return "clock"
    if (1 - TOLERANCE) * counted.busy_ns > trace_ns:
        return SLOWER
    return "launch and wait" if trace_ns < ncu_ns else NOT_EXPLAINED


def why_bytes(claimed: int, counted: Counted, probes: Probes) -> str:
    """Why DRAM moved more or fewer bytes than claimed, as this module says."""
    moved = counted.read_bytes + counted.written_bytes
    if abs(moved - claimed) <= TOLERANCE * claimed:
        return WITHIN
    if abs(moved - claimed) <= probes.background_bytes:
        return "background"
    if moved < claimed and counted.l2_bytes >= (1 - TOLERANCE) * claimed:
        return "L2"
    if moved > claimed and counted.read_bytes <= (1 + TOLERANCE) * claimed:
        return "written back"
    if moved > claimed and counted.l2_bytes <= (1 + TOLERANCE) * claimed + SECTOR_BYTES:
        return "not data"
    return NOT_EXPLAINED


def _row(
    name: int, traced: Traced, kernel: CountedKernel, claimed: int | None, probes: Probes
) -> KernelRow:
    counted = kernel.median
    return KernelRow(
        name=name,
        trace_ns=traced.median_ns,
        trace_min_ns=min(traced.ns),
        trace_max_ns=max(traced.ns),
        idle_before_ns=traced.idle_before_ns,
        ncu_ns=counted.duration_ns,
        ncu_min_ns=kernel.min_ns,
        ncu_max_ns=kernel.max_ns,
        ncu_busy_ns=counted.busy_ns,
        trace_over_ncu=traced.median_ns / counted.duration_ns,
        why=why_time(traced, counted, probes),
        ncu_sm_hz=counted.sm_hz,
        claimed_bytes=claimed,
        dram_read_bytes=counted.read_bytes,
        dram_written_bytes=counted.written_bytes,
        l2_bytes=counted.l2_bytes,
        why_bytes=None if claimed is None else why_bytes(claimed, counted, probes),
    )


def _require_same(traced: Sequence[Traced], counted: Sequence[Counted]) -> None:
    for number, (one, other) in enumerate(zip(traced, counted, strict=False), start=1):
        if not _is_same(one, other):
            raise InputError(
                f"kernel {number} is {one.name!r} {one.grid} x {one.block} in the trace, but "
                f"{other.function!r} {other.grid} x {other.block} under ncu; the two processes ran "
                "different steps"
            )
    if len(traced) != len(counted):
        raise InputError(f"the trace has {len(traced)} kernels a step, ncu counted {len(counted)}")


def _is_same(traced: Traced, counted: Counted) -> bool:
    """ncu and the trace demangle names differently, but the function's own name is in both."""
    shapes = (traced.grid, counted.grid), (traced.block, counted.block)
    same_shape = all(one is None or one == other for one, other in shapes)
    return same_shape and counted.function in traced.name
