"""Compares the graph replays of a decode step in a trace with Nsight Compute's count of them.

`counter_check` compares kernels that ncu runs one by one. Here ncu runs a replay as one workload
(`--graph-profiling graph`): its kernels follow and overlap each other as they do in a decode step,
and what ncu adds to a workload is added once.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from msgspec import Struct

from benchmarks.counted_step import EMPTY_PROBES, MIDDLE_STEP, PROBE_CYCLES, WINDOW
from benchmarks.ncu_report import CountedWorkload
from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.timing.launches import graph_launch_calls
from decodescope.analyzer.trace import KERNEL, Int64s, Trace, grouped


class Workload(Struct, frozen=True):
    """A graph replay, or a kernel launched alone: its time from the first start to the last end in
    each traced step, and its ops."""

    name: str
    is_graph: bool
    ns: tuple[int, ...]
    ops: int

    @property
    def median_ns(self) -> float:
        """The median of the steps."""
        return median(self.ns)


class GraphFigures(Struct, frozen=True):
    """The graph replays of one step on both sides; times and bytes are sums over the replays.

    `trace_ns` has one figure for each traced step. `offset_ns` is what ncu adds to a kernel that
    does nothing (the probes' median), `trace_over_ncu` the median of `trace_ns` ÷ (`ncu_ns` -
    `offset_ns` for each replay). `claimed_bytes` is null if the step does not consist of our
    kernels alone. `passes`: above 1, ncu replayed a graph more than once.
    """

    variant: str
    replays: int
    ops: int
    trace_ns: tuple[int, ...]
    ncu_ns: float
    offset_ns: float
    trace_over_ncu: float
    claimed_bytes: int | None
    dram_read_bytes: float
    dram_written_bytes: float
    passes: int


def traced_workloads(path: Path) -> tuple[Workload, ...]:
    """What the middle step of a trace file launched, in the order of the launches, without copies
    and fills that no graph contains: ncu does not count them.

    Raises:
        InputError: not as many steps as were traced, or the steps launched different work.
        TraceError: as `load`.
    """
    analysis = analyze(load(path))
    if len(analysis.steps) != WINDOW.steps:
        raise InputError(f"the trace has {len(analysis.steps)} steps, not {WINDOW.steps}")
    of_step = analysis.steps.op_step
    steps = [
        list(_workloads(analysis.trace, np.flatnonzero(of_step == one)))
        for one in range(WINDOW.steps)
    ]
    kinds = [[(one.name, one.is_graph, one.ops) for one in step] for step in steps]
    if any(one != kinds[MIDDLE_STEP] for one in kinds):
        counts = ", ".join(str(len(one)) for one in kinds)
        raise InputError(f"the traced steps launched different work ({counts} workloads)")
    return tuple(
        Workload(one.name, one.is_graph, tuple(step[place].ns[0] for step in steps), one.ops)
        for place, one in enumerate(steps[MIDDLE_STEP])
    )


def _workloads(trace: Trace, rows: Int64s) -> Iterator[Workload]:
    launch, ops = trace.ops.launch, trace.ops
    launched = rows[launch[rows] >= 0]
    is_graph = graph_launch_calls(trace)
    for mine in grouped(launched, launch):
        whole = bool(is_graph[launch[mine[0]]])
        if whole or ops.kind[mine[0]] == KERNEL:
            length_ns = int(ops.end_ns[mine].max() - ops.start_ns[mine].min())
            yield Workload(trace.names[ops.name[mine[0]]], whole, (length_ns,), len(mine))


def graph_figures(
    variant: str,
    traced: Sequence[Workload],
    counted: Sequence[CountedWorkload],
    claims: Sequence[int] | None,
) -> GraphFigures:
    """The replays of both sides, workload by workload.

    Raises:
        InputError: the two sides did not launch the same work, with the probes at the end, or no
            graph.
    """
    if len(traced) != len(counted):
        raise InputError(
            f"the trace has {len(traced)} workloads a step, ncu counted {len(counted)}"
        )
    pairs = list(zip(traced, counted, strict=True))
    for number, (one, other) in enumerate(pairs, start=1):
        if not one.is_graph and other.name not in one.name:
            raise InputError(
                f"workload {number} is {one.name!r} in the trace, but {other.name!r} under ncu; "
                "the two processes ran different steps"
            )
    replays = [(one, other) for one, other in pairs if one.is_graph]
    probes = pairs[-len(PROBE_CYCLES) :][:EMPTY_PROBES]
    if not replays or any(one.is_graph for one, _ in probes):
        raise InputError(f"{variant} replays no graph before the probes")
    offset_ns = median(other.duration_ns - one.median_ns for one, other in probes)
    steps_ns = tuple(map(sum, zip(*(one.ns for one, _ in replays), strict=True)))
    ncu_ns = sum(other.duration_ns for _, other in replays)
    return GraphFigures(
        variant,
        len(replays),
        sum(one.ops for one, _ in replays),
        steps_ns,
        ncu_ns,
        offset_ns,
        median(steps_ns) / (ncu_ns - offset_ns * len(replays)),
        None if claims is None else sum(claims),
        sum(other.read_bytes for _, other in replays),
        sum(other.written_bytes for _, other in replays),
        max(other.passes for _, other in replays),
    )
