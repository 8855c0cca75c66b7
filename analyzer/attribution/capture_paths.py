"""The nodes of captured graphs with their paths, from a profile of the captures.

While a thread captures, its launch, copy and fill calls run nothing: each adds one node to the
graph. So the calls between begin and end, in their order, are the nodes. A node's path is the
modules and annotations that were open at its call, and below them the operator.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import PurePath

import numpy as np

from decodescope.analyzer.attribution.range_tree import NO_NODE, PathTree, is_wrapper, operators_of
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.graph_reference import CapturedGraph, GraphReference, ReferenceOp
from decodescope.analyzer.timing.launches import (
    BEGIN_CAPTURE,
    END_CAPTURE,
    KERNEL_LAUNCH,
    calls_named,
    while_capturing,
)
from decodescope.analyzer.timing.step_annotations import is_step_name
from decodescope.analyzer.trace import HostEvents, Trace, rows_in

MEMCPY_NODE, MEMSET_NODE = "memcpy", "memset"
_COPY = re.compile(r"Memcpy", re.IGNORECASE)
_FILL = re.compile(r"Memset", re.IGNORECASE)
# vLLM names each capture `capture_<tokens>_<mode>`; SGLang's files are `bs_<batch>_rank<rank>`.
_CAPTURE = re.compile(r"(?:\w+_)?capture_(\d{1,9})(?:_\w+)?$")
_BATCH_FILE = re.compile(r"(?:^|_)bs_?(\d{1,9})(?=[_.])")
_COMPILED = re.compile(r"## Call CompiledFxGraph (\w{1,8})\w* ##$")
_CUT = frozenset(("truncated", "broken_json", "cut_trace"))

# Programs nest ranges and operators less deep; more are made up.
MAX_OPEN = 256


@dataclass(frozen=True, slots=True)
class _Node:
    """One captured call: the ranges open around it (rows of `Trace.ranges`, outermost first), its
    operator (a row of `Trace.cpu_ops`, -1 for none), its kernel, "" if unknown, and the id of the
    operator call that made it, -1 if unknown."""

    ranges: tuple[int, ...]
    operator: int
    name: str
    external_id: int


@dataclass(slots=True)
class _Graph:
    """A captured graph; `began_in` are the ranges around its begin, None if that is not there."""

    began_in: tuple[int, ...] | None = None
    ended: bool = False
    nodes: list[_Node] = field(default_factory=list)

    @property
    def around(self) -> tuple[int, ...]:
        return self.nodes[0].ranges if self.began_in is None else self.began_in


def capture_reference(captures: Sequence[Trace]) -> GraphReference:
    """The nodes of all graphs that the profiles captured, in the order of their launch calls.

    Paths have no part for the capture itself. Of several instances of one range name below the same
    parent, those with nodes are numbered in order (`GraphModule_0[0]`, `GraphModule_0[1]`, …).

    Raises:
        InputError: a profile has no captured launches.
    """
    ops: list[ReferenceOp] = []
    graphs: list[CapturedGraph] = []
    number = count()
    for trace in captures:
        before = len(ops)
        for group in _by_group(trace, [graph for graph in _graphs(trace) if graph.nodes]):
            _add(trace, group, next(number), ops, graphs)
        if len(ops) == before:
            raise InputError(
                f"{trace.source.path}: no captured launches, so no profile of a graph's capture; "
                "give the file that the engine recorded while it captured its graphs"
            )
    return GraphReference(tuple(ops), tuple(graphs))


def _graphs(trace: Trace) -> Iterator[_Graph]:
    calls = trace.calls
    begins, ends = calls_named(trace, BEGIN_CAPTURE), calls_named(trace, END_CAPTURE)
    capturing = while_capturing(trace)
    ran = np.zeros(len(calls) + 1, dtype=np.bool_)
    ran[trace.ops.launch] = True
    copies, fills = calls_named(trace, _COPY), calls_named(trace, _FILL)
    recorded = (calls_named(trace, KERNEL_LAUNCH) | copies | fills) & capturing & ~ran[:-1]
    kernel = trace.call_kernels.of(calls)
    for call_rows in calls.by_thread():
        wanted = call_rows[recorded[call_rows] | begins[call_rows] | ends[call_rows]]
        if not recorded[wanted].any():
            continue
        graph, correlation = _Graph(), -1
        around = open_events(trace, calls.take(wanted))
        meant = operators_of(trace.cpu_ops, calls.external_id[wanted]).tolist()
        for call, (ranges, operators), other in zip(wanted.tolist(), around, meant, strict=True):
            if begins[call] or ends[call]:
                graph.ended = bool(ends[call])
                if graph.nodes:
                    yield graph
                graph = _Graph(ranges) if begins[call] else _Graph()
                continue
            # A driver call below a runtime call has its correlation id.
            nested = int(calls.correlation[call]) == correlation > 0
            correlation = int(calls.correlation[call])
            if nested:
                continue
            name = MEMCPY_NODE if copies[call] else MEMSET_NODE if fills[call] else ""
            if not name and kernel[call] >= 0:
                name = trace.names[int(kernel[call])]
            operator = _operator(trace, ranges, operators) if operators else other
            graph.nodes.append(_Node(ranges, operator, name, int(calls.external_id[call])))
        yield graph


def _operator(trace: Trace, ranges: tuple[int, ...], operators: tuple[int, ...]) -> int:
    """The outermost operator below the innermost range that wraps no others, else the outermost
    one of all."""
    rows = trace.cpu_ops
    own = [row for row in operators if not is_wrapper(trace.names[rows.name[row]])]
    since = trace.ranges.start_ns[ranges[-1]] if ranges else None
    below = [row for row in own if since is None or rows.start_ns[row] >= since]
    return (below or own or operators)[0]


def _by_group(trace: Trace, graphs: Sequence[_Graph]) -> list[list[_Graph]]:
    """The graphs that were captured for one step: below one instance of a capture's annotation,
    else below one outermost range that was open when each began; else a graph is alone."""
    groups: dict[tuple[str, int], list[_Graph]] = {}
    for number, graph in enumerate(graphs):
        annotation = _annotation(trace, graph)
        shown = [row for row in graph.began_in or () if _part(_name(trace, row)) is not None]
        key = ("graph", number)
        if annotation is not None:
            key = ("range", annotation)
        elif shown:
            key = ("range", shown[0])
        groups.setdefault(key, []).append(graph)
    return list(groups.values())


def _annotation(trace: Trace, graph: _Graph) -> int | None:
    return next((row for row in graph.around if _CAPTURE.match(_name(trace, row))), None)


def _add(
    trace: Trace,
    group: Sequence[_Graph],
    number: int,
    ops: list[ReferenceOp],
    graphs: list[CapturedGraph],
) -> None:
    tree, places = _tree(trace, [node for graph in group for node in graph.nodes])
    paths = (*tree.paths(), "")
    place = iter(places)
    label, batch = _label(trace, group[0])
    cut = any(finding.code in _CUT for finding in trace.findings)
    for graph in group:
        graphs.append(
            CapturedGraph(
                first=len(ops),
                ops=len(graph.nodes),
                group=number,
                file=trace.source.path,
                label=label,
                batch=batch,
                cut=cut or not graph.ended,
            )
        )
        named = all(node.name for node in graph.nodes)
        ops += [
            ReferenceOp(
                stream=0,
                name=node.name if named or node.name in (MEMCPY_NODE, MEMSET_NODE) else "",
                path=paths[next(place)],
                bytes=moved,
                flops=flops,
                operator=_operator_name(trace, node.operator),
            )
            for node, (moved, flops) in zip(graph.nodes, _work(trace, graph.nodes), strict=True)
        ]


def _work(trace: Trace, nodes: Sequence[_Node]) -> Iterator[tuple[int | None, int | None]]:
    """Bytes and FLOPs of each node: those of its operator count for the first kernel of it (the
    reduction of a split product has none)."""
    rows = rows_in(trace.work.external_id, np.array([node.external_id for node in nodes]))
    counted: set[int] = set()
    for node, row in zip(nodes, rows.tolist(), strict=True):
        if row < 0 or row in counted or node.name in (MEMCPY_NODE, MEMSET_NODE):
            yield None, None
            continue
        counted.add(row)
        yield int(trace.work.bytes[row]), int(trace.work.flops[row])


def _tree(trace: Trace, nodes: Sequence[_Node]) -> tuple[PathTree, list[int]]:
    """The paths of one group's nodes as a tree, and each node's number in it."""
    rows = {row for node in nodes for row in node.ranges}
    parts = {row: part for row in rows if (part := _part(_name(trace, row))) is not None}
    instances: dict[tuple[int, int], int] = {}
    alike: Counter[tuple[int, str]] = Counter()
    place: list[int] = []
    innermost = []
    for node in nodes:
        at = NO_NODE
        for row in node.ranges:
            if row not in parts:
                continue
            if (at, row) not in instances:
                instances[at, row] = len(place)
                place.append(alike[at, parts[row]])
                alike[at, parts[row]] += 1
            at = instances[at, row]
        innermost.append(at)
    tree, numbers = PathTree(), {NO_NODE: NO_NODE}
    for (parent, row), instance in instances.items():
        name = parts[row]
        if alike[parent, name] > 1:
            name = f"{name}[{place[instance]}]"
        numbers[instance] = tree.child(numbers[parent], name)
    nodes_of = []
    for node, at in zip(nodes, innermost, strict=True):
        operator, top = _operator_name(trace, node.operator), numbers[at]
        nodes_of.append(top if operator is None else tree.child(top, operator, operator=True))
    return tree, nodes_of


def _label(trace: Trace, graph: _Graph) -> tuple[str, int | None]:
    """The annotation around a capture, and the batch size that it or the file's name says."""
    row = _annotation(trace, graph)
    label = "" if row is None else _name(trace, row)
    batch = _CAPTURE.match(label) or _BATCH_FILE.search(PurePath(trace.source.path).name)
    return label, int(batch[1]) if batch else None


def _part(name: str) -> str | None:
    """A range's name in paths; None for what is around a capture and no part of the model."""
    if match := _COMPILED.match(name):
        return f"CompiledFxGraph {match[1]}"
    return None if _CAPTURE.match(name) or is_step_name(name) else name


def _name(trace: Trace, row: int) -> str:
    return trace.names[int(trace.ranges.name[row])]


def _operator_name(trace: Trace, row: int) -> str | None:
    return None if row < 0 else trace.names[int(trace.cpu_ops.name[row])]


def open_events(
    trace: Trace, calls: HostEvents
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """For each of one thread's calls, in order of start, the rows of `Trace.ranges` and those of
    `Trace.cpu_ops` that are open on that thread, outermost first.

    An event is open from its start until just before its end. At most `MAX_OPEN` are counted.
    """
    columns = []
    for kind, events in enumerate((trace.ranges, trace.cpu_ops, calls)):
        overlaps = (events.pid == calls.pid[0]) & (events.tid == calls.tid[0])
        overlaps &= (events.start_ns <= calls.start_ns[-1]) & (events.end_ns > calls.start_ns[0])
        rows = np.arange(len(calls)) if events is calls else np.flatnonzero(overlaps)
        kinds = np.full(len(rows), kind)
        columns.append((events.start_ns[rows], events.end_ns[rows], kinds, rows))
    start, end, kinds, rows = (np.concatenate(column) for column in zip(*columns, strict=True))
    is_call = kinds == 2
    order = np.lexsort((kinds, -end, is_call, start))
    sorted_columns = (column[order].tolist() for column in (start, end, kinds, rows, is_call))
    opened: list[tuple[int, int, int]] = []
    for start_ns, end_ns, kind, row, of_call in zip(*sorted_columns, strict=True):
        opened = [event for event in opened if event[0] > start_ns]
        if of_call:
            yield (
                tuple(row for _, kind, row in opened if kind == 0),
                tuple(row for _, kind, row in opened if kind == 1),
            )
        elif len(opened) < MAX_OPEN:
            opened.append((end_ns, kind, row))
