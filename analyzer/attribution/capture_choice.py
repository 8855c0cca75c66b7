"""Which of the given capture profiles fit a trace: only their graphs become its reference."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from decodescope.analyzer.attribution.capture_paths import capture_reference
from decodescope.analyzer.attribution.captured_replays import (
    CapturedReplays,
    GraphLaunch,
    GraphMatch,
    fits,
)
from decodescope.analyzer.attribution.range_tree import PathTree, host_nodes
from decodescope.analyzer.attribution.replays import GraphReplays, match_captured
from decodescope.analyzer.schema.graph_reference import CapturedGraph, GraphReference, ReferenceOp
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.timing.launches import graph_launch_calls
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Trace

NOT_USED = "capture_not_used"
TELLS_NOTHING = "capture_tells_nothing"
# The share of nodes that have the same path as most of their graph.
_ONE_PATH = 0.9


def choose_captures(
    timeline: Timeline, captures: tuple[Trace, ...]
) -> tuple[GraphReference | None, tuple[Finding, ...]]:
    """The trace's reference with the captured graphs that it replays, and a finding for each
    profile that is not used, or whose paths do not tell the ops of a graph apart.

    A reference of the same step stays as it is; annotated nodes stay behind those of the graphs.

    Raises:
        InputError: a profile has no captured launches.
    """
    trace = timeline.trace
    reference = capture_reference(captures)
    own = trace.reference
    files = list(dict.fromkeys(profile.source.path for profile in captures))
    if own is not None and own.of_step and own.ops:
        why = "the trace brings the ops of its own step without the graph, which name its replays"
        return own, tuple(_unused(file, why) for file in files)
    replayed = np.append(graph_launch_calls(trace), False)[trace.ops.launch]
    if not replayed.any():
        return own, tuple(_unused(file, "the trace has no graph replay") for file in files)
    tree = PathTree()
    node = np.full(len(trace.ops), -1, dtype=np.int64)
    starts = trace.calls.starts.take(trace.ops.launch[replayed])
    node[replayed] = host_nodes(trace, tree, starts, np.zeros(len(starts), dtype=np.bool_))
    replays = GraphReplays(timeline, tree, node, replayed, reference)
    launches, matches, matcher = match_captured(replays)
    used = {match.graph for match in matches if match is not None}
    findings = []
    for file in files:
        numbers = [k for k, graph in enumerate(reference.graphs) if graph.file == file]
        if used.isdisjoint(numbers):
            graphs = [reference.graphs[k] for k in numbers]
            why = _why_not(graphs, launches, matches, matcher)
            findings.append(_unused(file, why))
    annotated = () if own is None else tuple(op for op in own.ops if op.node is not None)
    kept = _only(reference, {reference.graphs[k].group for k in used}, annotated)
    findings += _telling_nothing(kept)
    return kept if used else own, tuple(findings)


def _telling_nothing(reference: GraphReference) -> Iterator[Finding]:
    """A finding for each file whose nodes have one path in each graph, or nearly all: something was
    open around the whole capture and nothing below it, as with torch.compile's CUDA graphs. Graphs
    of one node have nothing to tell apart."""
    nodes: Counter[str] = Counter()
    alike: Counter[str] = Counter()
    around: dict[str, str] = {}
    for graph in reference.graphs:
        if graph.ops > 1:
            ops = reference.ops[graph.first : graph.first + graph.ops]
            ((path, number),) = Counter(op.path for op in ops).most_common(1)
            nodes[graph.file] += graph.ops
            alike[graph.file] += number
            around.setdefault(graph.file, path.rsplit("/", 1)[-1])
    for file, number in alike.items():
        if number >= _ONE_PATH * nodes[file]:
            named = f"nothing below {around[file]}" if around[file] else "nothing"
            yield Finding(
                TELLS_NOTHING,
                f"the capture {file} names {named} for {number:,} of {nodes[file]:,} nodes, so it "
                "does not tell the ops of a graph apart; for modules, record trace and capture "
                "without torch.compile and with Python stacks",
            )


def _only(
    reference: GraphReference, groups: set[int], annotated: tuple[ReferenceOp, ...]
) -> GraphReference:
    ops: list[ReferenceOp] = []
    graphs: list[CapturedGraph] = []
    for graph in reference.graphs:
        if graph.group in groups:
            graphs.append(msgspec.structs.replace(graph, first=len(ops)))
            ops += reference.ops[graph.first : graph.first + graph.ops]
    return GraphReference((*ops, *annotated), tuple(graphs))


def _why_not(
    graphs: list[CapturedGraph],
    launches: list[GraphLaunch],
    matches: list[GraphMatch | None],
    matcher: CapturedReplays,
) -> str:
    batches = sorted({launch.batch for launch in launches if launch.batch is not None})
    sizes = sorted({graph.batch for graph in graphs if graph.batch is not None})
    fitting = any(fits(graph, batch) for graph in graphs for batch in batches)
    if batches and sizes and not fitting:
        return (
            f"it captured batch {_listed(sizes)}, and the trace replays graphs for batch "
            f"{_listed(batches)}"
        )
    left = [launch for launch, match in zip(launches, matches, strict=True) if match is None]
    if not left:
        return "other graphs fit the trace's replays"
    best = max((matcher.best[graph.group] for graph in graphs), default=0.0)
    if best > 0:
        return "several of its graphs fit the trace's replays, with different paths"
    replayed = sorted({len(launch.ops) for launch in left})
    captured = sorted({graph.ops for graph in graphs})
    return (
        f"its graphs, of {_listed(captured)} ops, are others than those that the trace replays, "
        f"of {_listed(replayed)} ops: another model, batch size or version"
    )


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(f"{number:,}" for number in numbers[:4])
    return shown if len(numbers) <= 4 else f"{shown}, … {numbers[-1]:,}"


def _unused(file: str, why: str) -> Finding:
    return Finding(NOT_USED, f"the capture {file} is not used: {why}")
