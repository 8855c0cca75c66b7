"""The rows of the report's range tree: GPU time, idle time, ops and launch calls of every path."""

import numpy as np

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree
from decodescope.analyzer.attribution.ranges import Ranges
from decodescope.analyzer.attribution.replays import CONFIDENCES
from decodescope.analyzer.reports.device_report import idle_by_name
from decodescope.analyzer.reports.main_steps import MainSteps
from decodescope.analyzer.schema.report import GAP_CLASSES, RangeKind, RangeReport
from decodescope.analyzer.timing.intervals import grouped_busy_ns
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, GpuOps, Int64s, rows_by


def range_reports(timeline: Timeline, ranges: Ranges, main: MainSteps) -> tuple[RangeReport, ...]:
    """The range paths that put work on a GPU in the `main` steps, parents before children, the
    sibling with most `gpu_ns` first, or with most `attributed_ns` if ops overlap. Gaps before ops
    without a path are in no row."""
    tree, ops, parts = ranges.tree, timeline.trace.ops, main.idle
    op_node = np.where(main.ops, ranges.op_node, NO_NODE)
    call_node = np.where(main.ops[timeline.launches.first_op], ranges.call_node, NO_NODE)
    gpu_ns = _gpu_ns(ops, tree, op_node)
    # The last row, which NO_NODE is, stands for ops without a path.
    idle_ns = np.zeros((len(tree) + 1, len(GAP_CLASSES)), dtype=np.int64)
    np.add.at(idle_ns, (ranges.op_node[timeline.gaps.next[parts.gap]], parts.kind), parts.length_ns)
    attributed_ns, gpu_ops, launch_calls = np.zeros((3, len(tree) + 1), dtype=np.int64)
    np.add.at(attributed_ns, op_node, timeline.attributed_ns)
    np.add.at(gpu_ops, op_node, 1)
    np.add.at(launch_calls, call_node, 1)
    idle_ns, attributed_ns, gpu_ops, launch_calls = (
        tree.add_up(column[:-1]) for column in (idle_ns, attributed_ns, gpu_ops, launch_calls)
    )
    reports = []
    for node in _in_order(tree, attributed_ns if timeline.overlapping else gpu_ns, gpu_ops):
        matched = float(ranges.node_matched[node])
        kind: RangeKind = "operator" if tree.operator[node] else "range"
        reports.append(
            RangeReport(
                path=ranges.paths[node],
                gpu_ns=int(gpu_ns[node]),
                gpu_ops=int(gpu_ops[node]),
                launch_calls=int(launch_calls[node]),
                confidence=CONFIDENCES[ranges.node_confidence[node]],
                idle_ns=int(idle_ns[node].sum()),
                gaps=idle_by_name(idle_ns[node]),
                kind="inferred" if tree.inferred[node] else kind,
                matched=None if np.isnan(matched) else matched,
                attributed_ns=int(attributed_ns[node]),
            )
        )
    return tuple(reports)


def _gpu_ns(ops: GpuOps, tree: PathTree, op_node: Int64s) -> Int64s:
    """Busy time of each subtree. Ops that overlap with no other op of their device simply add up;
    the others need the union of their intervals."""
    alone = _alone(ops)
    itself = np.zeros(len(tree), dtype=np.int64)
    sole = np.flatnonzero(alone & (op_node != NO_NODE))
    np.add.at(itself, op_node[sole], ops.length_ns[sole])
    total = tree.add_up(itself)
    rest = np.flatnonzero(~alone & (op_node != NO_NODE))
    devices, device = np.unique(ops.device[rest], return_inverse=True)
    node = op_node[rest]
    parents, depths = np.array([*tree.parents, NO_NODE]), np.array([*tree.depths, NO_NODE])
    for depth in range(int(depths.max()), -1, -1):
        deep = np.flatnonzero(depths[node] == depth)
        groups, group = np.unique(node[deep] * len(devices) + device[deep], return_inverse=True)
        start_ns, end_ns = ops.start_ns[rest[deep]], ops.end_ns[rest[deep]]
        busy_ns = grouped_busy_ns(group, start_ns, end_ns, len(groups))
        np.add.at(total, groups // max(len(devices), 1), busy_ns)
        node[deep] = parents[node[deep]]
    return total


def _alone(ops: GpuOps) -> Bools:
    alone = np.ones(len(ops), dtype=np.bool_)
    for op_rows in rows_by(ops.device).values():
        start_ns, end_ns = ops.start_ns[op_rows], ops.end_ns[op_rows]
        alone[op_rows[1:]] &= start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]
        alone[op_rows[:-1]] &= start_ns[1:] >= end_ns[:-1]
    return alone


def _in_order(tree: PathTree, taken_ns: Int64s, gpu_ops: Int64s) -> list[int]:
    """The nodes that have ops, parents before children and the largest sibling first."""
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(tree.parents):
        if gpu_ops[node]:
            children.setdefault(parent, []).append(node)
    for siblings in children.values():
        siblings.sort(key=lambda node: (-int(taken_ns[node]), tree.names[node]), reverse=True)
    ordered = []
    pending = children.get(NO_NODE, [])
    while pending:
        node = pending.pop()
        ordered.append(node)
        pending.extend(children.get(node, ()))
    return ordered
