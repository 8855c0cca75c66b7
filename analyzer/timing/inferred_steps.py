"""Decode steps of a trace without markers: the cycles in which a thread repeats its launch calls.

A launch call's symbol stands for the ordered names of its ops; launches of one graph have one. The
steps of a thread are the cycles of exactly equal symbols, of all its graph launches ("graphs") or,
if these explain too little, of all its launch calls ("repetition"). In a trace without ops, a
symbol stands for the operator that launched, and the host's time before a call for the device's
wait.

- A cycle repeats at least twice in a row. It has at least `MIN_OPS` ops of at least `MIN_NAMES`
  names, and at least half of them are layers: a sequence of names that repeats at least
  `MIN_LAYERS` times within the cycle. Without this, the layers of one step would be taken for
  steps. The layers of cycles that repeat only twice have attention and products, and no
  convolution, as a decoder's.
- Cycles of "graphs" hold the other calls between their graph launches. Cycles of "repetition" may
  hold a few calls more than the others (`_EXTRA_SHARE`); these belong to the cycle they are in.
- All cycles of one sequence are cut at the same call: of those outside the layers, the one before
  which the device typically waits longest (the median over the cycles); without any wait, the first
  graph launch.
- Incomplete cycles at either end, and before and after anything else, are no steps.
- All steps together hold at least half of the trace's ops; otherwise there are none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.timing.intervals import Union, open_changes
from decodescope.analyzer.timing.launches import LaunchCalls, threads_at
from decodescope.analyzer.timing.repetition import Run, maximal_runs
from decodescope.analyzer.trace import Bools, Columns, Int64s, Intervals, Trace

StepSource = Literal["markers", "frames", "graphs", "repetition", "none"]

MIN_LAYERS = 3
MIN_OPS = 8
MIN_NAMES = 4
_EXTRA_SHARE = 16
_MOST_EXTRA = 8
_MOST_CALLS_BEFORE = 64
_MOST_REFUSED = 20


@dataclass(frozen=True, slots=True, eq=False)
class FoundSteps:
    """Steps that no range marks, in order of host start: the columns of `Steps` of the same names.
    `call_step` gives each host call of the trace its step, -1 for none."""

    source: StepSource
    marker: Int64s
    host: Intervals
    following: Int64s
    call_step: Int64s


@dataclass(frozen=True, slots=True, eq=False)
class _Thread(Columns):
    """The launch calls of one thread in order: `rows` in `LaunchCalls`, symbol, number of ops, and
    the ns of waiting before it."""

    rows: Int64s
    symbol: Int64s
    ops: Int64s
    idle_ns: Int64s
    is_graph: Bools


@dataclass(frozen=True, slots=True)
class _Cut:
    """Where cycles begin: `before` calls before the anchor that follows the symbols' first `shift`
    ones; the last anchor of a cycle has `after` calls behind it."""

    shift: int
    before: int
    after: int


def infer_steps(trace: Trace, unions: dict[int, Union], launches: LaunchCalls) -> FoundSteps | None:
    """The steps of a trace without markers, None if it shows none. See the module's description."""
    if trace.on_cpu or len(launches) < 2:
        return None
    if len(trace.ops):
        names, first_name = _names_in_order(trace, launches)
        idle_ns = _idle_before_ops(trace, unions)[launches.first_op]
    else:
        names, first_name = _operators(trace, launches), np.arange(len(launches) + 1)
        idle_ns = _host_time_before(trace, launches)
    threads = _threads(trace, launches, _symbols(names, first_name), idle_ns)
    sources: tuple[StepSource, ...] = ("graphs", "repetition")
    for source in sources:
        cycles = [
            (launches.call[thread.rows], thread.ops, first, after)
            for thread in threads
            for first, after in _cycles(trace.names, thread, names, first_name, source)
        ]
        in_steps = sum(int(ops[first:after].sum()) for _, ops, first, after in cycles)
        if in_steps and 2 * in_steps >= (len(trace.ops) or len(launches)):
            break
    else:
        return None
    cycles.sort(key=lambda cycle: int(cycle[0][cycle[2]]))
    call_step = np.full(len(trace.calls), -1, dtype=np.int64)
    for step, (calls, _, first, after) in enumerate(cycles):
        call_step[calls[first:after]] = step
    begin_ns = [trace.calls.start_ns[calls[first]] for calls, _, first, _ in cycles]
    end_ns = [trace.calls.end_ns[calls[first:after]].max() for calls, _, first, after in cycles]
    following = [
        call_step[calls[after]] if after < len(calls) else -1 for calls, *_, after in cycles
    ]
    return FoundSteps(
        source=source,
        marker=np.full(len(cycles), -1, dtype=np.int64),
        host=Intervals(np.array(begin_ns), np.array(end_ns)),
        following=np.array(following),
        call_step=call_step,
    )


def _names_in_order(trace: Trace, launches: LaunchCalls) -> tuple[Int64s, Int64s]:
    """The names of all linked ops by launch call, then stream and time, and where each call's
    begin: the order of a graph's ops on different streams differs from replay to replay."""
    linked = np.flatnonzero(trace.ops.launch >= 0)
    order = linked[np.lexsort((trace.ops.stream[linked], trace.ops.launch[linked]))]
    first = np.concatenate(([0], np.cumsum(launches.ops)))
    return trace.ops.name[order].astype(np.int64), first


def _operators(trace: Trace, launches: LaunchCalls) -> Int64s:
    """The name of the innermost operator that was open when each call began, of the call itself
    without one."""
    calls = trace.calls.take(launches.call)
    name = calls.name.astype(np.int64)
    every = np.arange(len(trace.cpu_ops))
    for operators, rows in threads_at(trace.cpu_ops, every, calls.starts):
        since_ns, operator = open_changes(trace.cpu_ops.take(operators))
        at = operator[np.searchsorted(since_ns, calls.start_ns[rows], side="right") - 1]
        name[rows[at >= 0]] = trace.cpu_ops.name[operators[at[at >= 0]]]
    return name


def _idle_before_ops(trace: Trace, unions: dict[int, Union]) -> Int64s:
    idle_ns = np.zeros(len(trace.ops), dtype=np.int64)
    for busy in unions.values():
        idle_ns[busy.first[1:]] = busy.start_ns[1:] - busy.end_ns[:-1]
    return idle_ns


def _host_time_before(trace: Trace, launches: LaunchCalls) -> Int64s:
    """From the end of the call before each on its thread to its start."""
    calls = trace.calls.take(launches.call)
    before_ns = np.zeros(len(calls), dtype=np.int64)
    for rows in calls.by_thread():
        before_ns[rows[1:]] = calls.start_ns[rows[1:]] - calls.end_ns[rows[:-1]]
    return before_ns


def _threads(
    trace: Trace, launches: LaunchCalls, symbol: Int64s, before_ns: Int64s
) -> list[_Thread]:
    rows = np.arange(len(launches))
    calls = _Thread(rows, symbol, launches.ops, before_ns, launches.is_graph)
    of_threads = trace.calls.take(launches.call).by_thread()
    return [calls.take(rows_of_thread) for rows_of_thread in of_threads]


def _symbols(names: Int64s, first_name: Int64s) -> Int64s:
    """One integer for each call, equal for calls whose ops have the same names in the same order.

    It is the sum of (a random number of the name * a random number of the place), modulo 2**64.
    """
    counts = np.diff(first_name)
    numbers = np.random.default_rng(0)
    of_name = numbers.integers(0, 2**64, int(names.max(initial=0)) + 1, dtype=np.uint64)
    of_place = numbers.integers(0, 2**64, int(counts.max(initial=0)), dtype=np.uint64)
    place = np.arange(len(names)) - np.repeat(first_name[:-1], counts)
    return np.add.reduceat(of_name[names] * of_place[place], first_name[:-1]).view(np.int64)


def _cycles(
    texts: Sequence[str],
    thread: _Thread,
    names: Int64s,
    first_name: Int64s,
    source: StepSource,
) -> list[tuple[int, int]]:
    """The calls [first, after) of each step of a thread, in order."""
    anchors = np.flatnonzero(thread.is_graph) if source == "graphs" else np.arange(len(thread.rows))
    symbols = thread.symbol[anchors]
    taken = np.zeros(len(thread.rows), dtype=np.bool_)
    cycles: list[tuple[int, int]] = []
    refused = 0
    for run in maximal_runs(symbols):
        reach = slice(int(anchors[run.start]), int(anchors[run.end - 1]) + 1)
        if taken[reach].any():
            continue
        begins = anchors[run.start : run.end : run.period]
        if thread.ops[begins[0] : begins[1]].sum() < MIN_OPS:
            continue
        shortest = int((begins[2:] - begins[:-2]).argmin()) if len(begins) > 2 else 0
        first, second = begins[[shortest, shortest + 1]].tolist()
        after = int(begins[shortest + 2]) if len(begins) > 2 else 2 * second - first
        two_cycles = [
            names[first_name[row] : first_name[row + 1]] for row in thread.rows[first:after]
        ]
        two_names = np.concatenate(two_cycles)
        layers = _layers(two_names)
        if layers is None or (len(begins) == 2 and not _decodes(texts, two_names, layers)):
            refused += 1
            if refused > _MOST_REFUSED:
                break
            continue
        inside = _inside_layers(thread.ops[first:after], layers)
        cut = _cut(thread, anchors, run, anchors[run.start + shortest * run.period :], inside)
        cycle = symbols[run.start + cut.shift : run.start + cut.shift + run.period]
        extra = 0 if source == "graphs" else min(max(run.period // _EXTRA_SHARE, 1), _MOST_EXTRA)
        for first, after in _placed(thread, anchors, _occurrences(symbols, cycle, extra), cut):
            if not taken[first:after].any():
                taken[first:after] = True
                cycles.append((first, after))
    return sorted(cycles)


def _layers(two_cycles: Int64s) -> Run | None:
    """The layers in the names of two cycles, None if the cycles are no steps: see the module's
    description."""
    length = len(two_cycles) // 2
    if length < MIN_OPS or len(np.unique(two_cycles)) < MIN_NAMES:
        return None
    for run in maximal_runs(two_cycles, min_repeats=MIN_LAYERS):
        if 2 * len(run) < length:
            return None
        if len(np.unique(two_cycles[run.start : run.start + run.period])) > 1:
            return run
    return None


def _decodes(texts: Sequence[str], two_cycles: Int64s, layers: Run) -> bool:
    """Whether the layers have attention and products, as a decoder's, and no convolution."""
    names = np.unique(two_cycles[layers.start : layers.start + layers.period]).tolist()
    kinds = {kernel_meaning(texts[name]).kind for name in names}
    return kinds >= {"attention", "product"} and "convolution" not in kinds


def _inside_layers(ops: Int64s, layers: Run) -> Bools:
    """For each call of two cycles, given its number of ops: whether it lies inside the layers of
    either, where no step begins."""
    length, ops_before = int(ops.sum()) // 2, np.cumsum(ops) - ops
    inside: Bools = np.any(
        [
            (ops_before + moved > layers.start) & (ops_before + moved < layers.end)
            for moved in (-length, 0, length)
        ],
        axis=0,
    )
    return inside


def _cut(thread: _Thread, anchors: Int64s, run: Run, two: Int64s, inside: Bools) -> _Cut:
    """The place in the cycle before which the device typically waits longest, outside the layers.

    `two` are anchors from the begin of the two cycles on whose calls `inside` describes.
    """
    repeats = len(run) // run.period
    places = run.start + np.arange(repeats * run.period).reshape(repeats, run.period)
    if repeats == 2:
        # Anything may precede the first one, which would be half of the median.
        places = places[1:]
    previous = np.concatenate(([-1], anchors))[places]
    at = anchors[places]
    between = at - previous - 1
    typical = np.median(between, axis=0).astype(np.int64)
    second = two[run.period : 2 * run.period] - two[0]
    longest_ns, cut = 0.0, _Cut(0, 0, int(typical[0]))
    for before in range(min(int(typical.max()), _MOST_CALLS_BEFORE) + 1):
        # The two cycles may have fewer calls before an anchor than is typical.
        in_layers = inside[np.maximum(second - before, 0)]
        there = (between >= before) & (typical >= before) & ~in_layers
        idle_ns = np.median(np.where(there, thread.idle_ns[np.maximum(at - before, 0)], 0), axis=0)
        shift = int(idle_ns.argmax())
        if idle_ns[shift] > longest_ns:
            longest_ns = float(idle_ns[shift])
            cut = _Cut(shift, before, int(typical[shift]) - before)
    return cut


def _occurrences(symbols: Int64s, cycle: Int64s, extra: int) -> list[tuple[int, int]]:
    """Where the cycle stands in the symbols, [first, after) each, in order and disjoint.

    With at most `extra` symbols more, where those lie between two such places: behind a cycle, they
    belong to it; inside, they make it longer.
    """
    length = len(cycle)
    exact = np.flatnonzero(symbols[: len(symbols) - length + 1] == cycle[0])
    for place in range(1, length):
        exact = exact[symbols[exact + place] == cycle[place]]
    occurrences: list[tuple[int, int]] = []
    for first in exact.tolist():
        after = occurrences[-1][1] if occurrences else first
        if first < after:
            continue
        lying = first - after
        if 0 < lying <= extra:
            occurrences[-1] = (occurrences[-1][0], first)
        elif length < lying <= length + extra:
            between = iter(symbols[after:first].tolist())
            if all(symbol in between for symbol in cycle.tolist()):
                occurrences.append((after, first))
        occurrences.append((first, first + length))
    return occurrences


def _placed(
    thread: _Thread, anchors: Int64s, occurrences: list[tuple[int, int]], cut: _Cut
) -> Iterator[tuple[int, int]]:
    """The calls [first, after) of each complete cycle, given the anchors [first, after) of each."""
    edges = np.concatenate(([-1], anchors, [len(thread.rows)]))
    ops_before = np.concatenate(([0], np.cumsum(thread.ops)))
    begins = [int(edges[first + 1]) - cut.before for first, _ in occurrences]
    ends = [int(edges[after]) + 1 + cut.after for _, after in occurrences]
    ops = [
        ops_before[min(end, len(thread.rows))] - ops_before[max(begin, 0)]
        for begin, end in zip(begins, ends, strict=True)
    ]
    most_ops = 1.25 * float(np.median(ops)) + MIN_OPS
    joined = -1
    for index, (first, after) in enumerate(occurrences):
        begin, end, most = max(begins[index], joined), ends[index], int(edges[after + 1])
        joined = -1
        if begin <= edges[first]:
            continue
        if index + 1 < len(occurrences) and occurrences[index + 1][0] == after:
            until = max(begins[index + 1], int(edges[after]) + 1)
            if ops_before[until] - ops_before[begin] <= most_ops:
                joined = until
                yield begin, until
                continue
        if end <= most:
            yield begin, end
