"""The model's ranges above the ops of CUDA graph replays, which the host never opened.

A slice covers consecutive ops of one path on one stream, from the first start to the last end. An
op that starts before the previous one ended cuts the ranges of that one short, so that slices
always nest; a range that is cut to nothing has no slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from decodescope.analyzer.attribution.replays import EXACT
from decodescope.analyzer.chrome.events import rows_of
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.trace import Int64s


@dataclass(slots=True)
class RangeSlice:
    """One range around ops of a replay; `confidence` is the worst of its ops' (see `Ranges`), or
    EXACT for the ranges around the launch itself."""

    node: int
    start_ns: int
    end_ns: int
    confidence: int


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive ops of one graph launch and one path; `outside` counts the ranges around the
    launch."""

    launch: int
    chain: tuple[int, ...]
    outside: int
    start_ns: int
    end_ns: int
    confidence: int


def replay_slices(analysis: Analysis, ops: Int64s) -> list[RangeSlice]:
    """The slices above those of `ops` (one stream's, by start) that attributed graph launches
    queued; outer slices precede the inner ones."""
    slices: list[RangeSlice] = []
    open_slices: list[RangeSlice] = []
    launch = -1
    for run in _runs(analysis, ops):
        kept = 0
        if run.launch == launch:
            pairs = zip(open_slices, run.chain, strict=False)
            kept = sum(1 for _ in takewhile(lambda pair: pair[0].node == pair[1], pairs))
        launch = run.launch
        for ended in open_slices[kept:]:
            ended.end_ns = min(ended.end_ns, run.start_ns)
        del open_slices[kept:]
        for node in run.chain[kept:]:
            open_slices.append(RangeSlice(node, run.start_ns, run.start_ns, EXACT))
            slices.append(open_slices[-1])
        for depth, around in enumerate(open_slices):
            around.end_ns = max(around.end_ns, run.end_ns)
            if depth >= run.outside:
                around.confidence = max(around.confidence, run.confidence)
    return [one for one in slices if one.end_ns > one.start_ns]


def _runs(analysis: Analysis, ops: Int64s) -> Iterator[_Run]:
    trace, ranges, launches = analysis.trace, analysis.ranges, analysis.launches
    if trace.reference is None:
        return
    attributed = np.zeros(len(trace.calls) + 1, dtype=np.bool_)
    attributed[trace.ops.launch[ranges.reference_op >= 0]] = True
    ops = ops[attributed[trace.ops.launch[ops]]]
    if not len(ops):
        return
    launch = trace.ops.launch[ops]
    launched_at = ranges.call_node[np.searchsorted(launches.call, launch)]
    partnered = ranges.reference_op[ops] >= 0
    node = np.where(partnered, ranges.op_node[ops], launched_at)
    confidence = np.where(partnered, ranges.confidence[ops], EXACT)
    changes = (np.diff(launch) != 0) | (np.diff(node) != 0)
    first = np.concatenate(([0], np.flatnonzero(changes) + 1))
    columns = (
        *(launch[first], node[first], launched_at[first], trace.ops.start_ns[ops[first]]),
        np.maximum.reduceat(trace.ops.end_ns[ops], first),
        np.maximum.reduceat(confidence, first),
    )
    chains = {one: tuple(ranges.tree.chain(one)) for one in np.unique(node).tolist()}
    for call, path, top, start, end, worst in rows_of(columns):
        yield _Run(call, chains[path], ranges.tree.depths[top] + 1, start, end, worst)
