"""An interruption of one device, and the host's calls and pauses that can be its cause."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.intervals import Union
from decodescope.analyzer.timing.launches import calls_named, find_captures, graph_launch_calls
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int8s, Int64s

Cause = Literal[
    "wait",
    "first_replay",
    "module_loading",
    "graph_upload",
    "graph_capture",
    "allocation",
    "profiler",
    "launch",
    "call",
    "late_start",
    "long_op",
    "window_edge",
    "unlinked",
    "host",
]

CALLS: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("graph_upload", re.compile(r"Graph(?:Upload|Instantiate|ExecUpdate|ExecKernel)")),
    (
        "module_loading",
        re.compile(
            r"Module(?:Load|Get|Unload)|Library(?:Load|Get|Enumerate)|Link(?:Create|Add|Complete)"
            r"|Func(?:Load|GetAttr|SetAttr|SetCache|GetModule)|KernelGet|KernelSet|RegisterFatBin"
            r"|GetFuncBySymbol|GetProcAddress"
        ),
    ),
    (
        "allocation",
        re.compile(
            r"Malloc|Free|HostAlloc|HostRegister|HostUnregister|MemPool|IpcOpen|IpcGet"
            r"|Mem(?:Alloc|Create|Map|Unmap|Release|SetAccess|Address)"
        ),
    ),
    ("wait", re.compile(r"Synchronize|StreamWait|EventQuery|StreamQuery")),
    ("launch", re.compile(r"Launch", re.IGNORECASE)),
    ("call", re.compile("")),
)
PAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    ("module_loading", re.compile(r"Lazy Function Loading")),
    ("profiler", re.compile(r"Buffer Flush|Activity Buffer|Instrumentation|Resource")),
)
# Causes that need no comparison with other calls: a step does none of these while a device idles.
KNOWN: frozenset[Cause] = frozenset(
    (
        "wait",
        "first_replay",
        "module_loading",
        "graph_upload",
        "graph_capture",
        "allocation",
        "profiler",
    )
)
HEAVY: frozenset[Cause] = frozenset(("module_loading", "graph_upload", "allocation"))
# Names of calls and ops in the evidence are cut to this length.
NAME_CELLS = 100


@dataclass(frozen=True, slots=True)
class Interruption:
    """The device did nothing for the steps in [start, end), for a cause that `evidence` shows.

    `call` indexes `Trace.calls`, `op` (that ended the gap, or ran long) `Trace.ops`; -1 for none.
    `host` is when the host was interrupted, None if it was not: it may have been ahead of the
    device. `before_ops`: it lies before the first op of the trace."""

    device: int
    start_ns: int
    end_ns: int
    cause: Cause
    evidence: str
    call: int
    op: int
    host: tuple[int, int] | None = None
    before_ops: bool = False

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def interruptions_by_gap(
    gaps: Gaps, interruptions: Sequence[Interruption]
) -> dict[int, list[Interruption]]:
    """The interruptions during each gap, by the gap's row and in order of time; gaps without one
    are left out."""
    by_gap: dict[int, list[Interruption]] = {}
    for interruption in sorted(interruptions, key=lambda one: one.start_ns):
        inside = (gaps.start_ns < interruption.end_ns) & (gaps.end_ns > interruption.start_ns)
        for row in np.flatnonzero(inside & (gaps.device == interruption.device)).tolist():
            by_gap.setdefault(row, []).append(interruption)
    return by_gap


@dataclass(frozen=True, eq=False)
class HostRecord:
    """The host side of a timeline. Each property is computed on first use, and once."""

    timeline: Timeline

    def cause_of(self, call: int) -> Cause:
        """The cause of an interruption that this call is."""
        cause = CALLS[int(self.call_kinds[call])][0]
        if cause != "launch":
            return cause
        if call in self.first_replays:
            return "first_replay"
        return "module_loading" if call in self.first_launches else "launch"

    @cached_property
    def call_kinds(self) -> Int8s:
        """For each call, the index in `CALLS` of the first kind that its name matches."""
        trace = self.timeline.trace
        kinds = np.full(len(trace.calls), len(CALLS) - 1, dtype=np.int8)
        for index in reversed(range(len(CALLS) - 1)):
            kinds[calls_named(trace, CALLS[index][1])] = index
        return kinds

    def others_of(self, call: int) -> tuple[int, int] | None:
        """How many other calls have the name of this one, and their median length; None if none."""
        calls = self.timeline.trace.calls
        same = np.flatnonzero(calls.name == calls.name[call])
        lengths = calls.length_ns[same[same != call]]
        return (len(lengths), int(np.median(lengths))) if len(lengths) else None

    def thread(self, call: int) -> tuple[int, int] | None:
        """(pid, tid) of a call; of the thread with most launches for -1, None without any."""
        calls, launches = self.timeline.trace.calls, self.timeline.launches
        if call >= 0:
            return int(calls.pid[call]), int(calls.tid[call])
        if not len(launches):
            return None
        threads = np.stack((calls.pid[launches.call], calls.tid[launches.call]), axis=1)
        threads, counts = np.unique(threads, axis=0, return_counts=True)
        pid, tid = threads[counts.argmax()].tolist()
        return pid, tid

    def calls_within(
        self, start_ns: int, end_ns: int, thread: tuple[int, int] | None, least_ns: int = 1
    ) -> Int64s:
        """The calls of a thread (of all for None) that overlap an interval for `least_ns`."""
        calls = self.timeline.trace.calls
        until = int(np.searchsorted(calls.start_ns, end_ns))
        begin_ns, stop_ns = calls.start_ns[:until], calls.end_ns[:until]
        overlap = np.minimum(stop_ns, end_ns) - np.maximum(begin_ns, start_ns)
        overlapping = overlap >= least_ns
        if thread is not None:
            overlapping &= (calls.pid[:until] == thread[0]) & (calls.tid[:until] == thread[1])
        return np.flatnonzero(overlapping)

    @cached_property
    def captured(self) -> Union:
        """When graphs were captured."""
        return find_captures(self.timeline.trace).during

    @cached_property
    def pause_kinds(self) -> Int8s:
        """For each pause of the profiler, the index in `PAUSES`, -1 for others."""
        trace = self.timeline.trace
        kinds = np.full(len(trace.overhead), -1, dtype=np.int8)
        for name in np.unique(trace.overhead.name).tolist():
            matches = [i for i, (_, words) in enumerate(PAUSES) if words.search(trace.names[name])]
            kinds[trace.overhead.name == name] = matches[0] if matches else -1
        return kinds

    @cached_property
    def first_replays(self) -> frozenset[int]:
        """The first launch of each graph: of its graph id, else of its first op and their number.

        The first launch of all is one even if what it launched is unknown."""
        trace, launches = self.timeline.trace, self.timeline.launches
        graphs = launches.take(launches.is_graph)
        name, graph = trace.ops.name[graphs.first_op], trace.ops.graph_id[graphs.first_op]
        has_id = graph > 0
        keys = np.column_stack((graph, np.where(has_id, 0, name), np.where(has_id, 0, graphs.ops)))
        _, first = np.unique(keys, axis=0, return_index=True)
        return frozenset(graphs.call[first].tolist())

    @cached_property
    def first_launches(self) -> frozenset[int]:
        """The launch calls that launched the first op of its name, and are no graph launches."""
        trace = self.timeline.trace
        _, first = np.unique(trace.ops.name, return_index=True)
        calls = trace.ops.launch[first]
        calls = calls[calls >= 0]
        return frozenset(calls[~graph_launch_calls(trace)[calls]].tolist())
