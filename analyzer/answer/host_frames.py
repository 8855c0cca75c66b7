"""The host's activity while it was late: the Python frame, operator and API call of that time.

Late time is the `host_wait`, `launch_call` and `launch_latency` time of the steps' devices. At each
instant of it, the thread that makes the awaited launch call has an innermost Python frame and an
innermost operator open, and an outermost API call: the one that the program made, of a driver call
below a runtime call. Frames that only call others (`_WRAPPERS`) and built-in functions, which have
no file and line, do not count.
"""

import re
from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.schema.answer import HostFrame
from decodescope.analyzer.timing.gaps import HOST_WAIT, LAUNCH_CALL, LAUNCH_LATENCY, GapParts
from decodescope.analyzer.timing.interruptions.interruption import (
    Interruption,
    without_interruptions,
)
from decodescope.analyzer.timing.intervals import (
    Union,
    covered_inside,
    covered_until,
    intersections,
    open_changes,
    union,
)
from decodescope.analyzer.timing.launches import first_matches
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import HostEvents, Int64s, Intervals, Trace, grouped, rows_by

MOST_ROWS = 5
# Steps of one kind resemble each other, and an eager step has thousands of pieces.
MOST_STEPS = 8
_LATE = (HOST_WAIT, LAUNCH_CALL, LAUNCH_LATENCY)
_FRAME = re.compile(r"\(\d+\): ")
_WRAPPERS = re.compile(
    r"(?:^|/)(?:threading\.py\(\d+\): (?:_bootstrap|_bootstrap_inner|run)"
    r"|contextlib\.py\(\d+\): (?:inner|__enter__|__exit__)"
    r"|torch/utils/_contextlib\.py\(\d+\): decorate_context"
    r"|torch/nn/modules/module\.py\(\d+\): (?:_call_impl|_wrapped_call_impl)"
    r"|torch/_dynamo/eval_frame\.py\(\d+\): \w+)$"
)
_BEFORE_PACKAGE = re.compile(r"^.*/(?:site-packages|dist-packages|lib/python[\d.]+|python)/")


def host_frames(
    timeline: Timeline, steps: Int64s, interruptions: Sequence[Interruption]
) -> tuple[HostFrame, ...]:
    """The host's activity while the device with most ops of each of `steps` waited, outside of
    `interruptions`: the largest `MOST_ROWS`, as the mean ns per step. Of more than `MOST_STEPS`
    steps, as many count, spread evenly."""
    trace = timeline.trace
    steps = steps[timeline.steps.gpu_ops[steps] > 0]
    steps = steps[np.linspace(0, len(steps) - 1, min(len(steps), MOST_STEPS)).astype(np.int64)]
    if trace.on_cpu or not len(steps):
        return ()
    late = _late_parts(timeline, steps, interruptions)
    call = timeline.gaps.call[late.gap]
    frames = trace.frames.take(first_matches(trace, trace.frames, (_WRAPPERS, _FRAME)) == 1)
    labels, late_ns = [], []
    for rows in grouped(np.arange(len(late)), trace.calls.pid[call], trace.calls.tid[call]):
        rows = rows[np.argsort(late.start_ns[rows], kind="stable")]
        waiting = union(late.start_ns[rows], late.end_ns[rows])
        thread = trace.calls.take(call[rows[:1]])
        activities = [
            _activity(events, thread, waiting, outermost=events is trace.calls)
            for events in (frames, trace.cpu_ops, trace.calls)
        ]
        edges_ns = np.concatenate(
            [waiting.start_ns[:1], *(since_ns[1:] for since_ns, _ in activities)]
        )
        edges_ns.sort(kind="stable")
        late_until_ns = covered_until(waiting, np.append(edges_ns, waiting.end_ns[-1]))
        piece_ns = np.diff(late_until_ns)
        is_late = piece_ns > 0
        late_ns.append(piece_ns[is_late])
        labels.append(
            [
                name[np.searchsorted(since_ns, edges_ns[is_late], side="right") - 1]
                for since_ns, name in activities
            ]
        )
    if not labels:
        return ()
    return _largest(trace, np.concatenate(labels, axis=1), np.concatenate(late_ns), len(steps))


def _late_parts(
    timeline: Timeline, steps: Int64s, interruptions: Sequence[Interruption]
) -> GapParts:
    """The late time within the steps' times, each on the device with most of its ops."""
    start_ns = timeline.steps.span.start_ns[steps]
    times = Intervals(start_ns, start_ns + timeline.steps.time_ns[steps])
    late = [timeline.parts.take(slice(0))]
    for device, rows in rows_by(timeline.steps.device[steps]).items():
        parts = timeline.parts.of_gaps(*timeline.gaps_of(device))
        parts = parts.take(np.isin(parts.kind, _LATE))
        windows = times.take(rows)
        if interruptions:
            ends = zip(windows.start_ns.tolist(), windows.end_ns.tolist(), strict=True)
            windows = Intervals.concatenate(
                [without_interruptions(interruptions, (device,), *end) for end in ends]
            )
        _, row, inside = intersections(windows, parts)
        late.append(GapParts(inside.start_ns, inside.end_ns, parts.gap[row], parts.kind[row]))
    return GapParts.concatenate(late)


def _activity(
    events: HostEvents, thread: HostEvents, waiting: Union, *, outermost: bool
) -> tuple[Int64s, Int64s]:
    """When the thread's open event changes, as far as it overlaps `waiting`, and its name from then
    on, counted from 1; 0 for none."""
    rows = np.flatnonzero((events.tid == thread.tid) & (events.pid == thread.pid))
    times = Intervals(events.start_ns[rows], events.end_ns[rows])
    overlapping = covered_inside(waiting, times) > 0
    since_ns, row = open_changes(times.take(overlapping), outermost=outermost)
    names = events.name[rows[overlapping]].astype(np.int64) + 1
    return since_ns, np.append(names, 0)[row]


def _largest(trace: Trace, labels: Int64s, lengths_ns: Int64s, steps: int) -> tuple[HostFrame, ...]:
    """The activities that last longest, with their time per step. `labels` are the names of frame,
    operator and call as numbers above 0: int64 [3, pieces]."""
    activity = np.unique(labels, axis=1, return_inverse=True)[1].ravel()
    total_ns = np.zeros(activity.max(initial=-1) + 1, dtype=np.int64)
    np.add.at(total_ns, activity, lengths_ns)
    piece = np.zeros(len(total_ns), dtype=np.int64)
    piece[activity] = np.arange(len(activity))
    order = np.argsort(-total_ns, kind="stable")[:MOST_ROWS]
    texts = [
        [trace.names[name - 1] if name else None for name in label]
        for label in labels[:, piece[order]].tolist()
    ]
    return tuple(
        HostFrame(
            frame=_BEFORE_PACKAGE.sub("", frame) if frame else None,
            operator=operator,
            call=call,
            ns=round(ns / steps),
        )
        for frame, operator, call, ns in zip(*texts, total_ns[order].tolist(), strict=True)
    )
