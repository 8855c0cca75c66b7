"""What kind of step each one is, its batch and its KV length: from annotations, or the capture."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.timing.step_annotations import (
    ENGINE_MARKER,
    UNKNOWN,
    StepAnnotation,
    common,
    parse_annotation,
    supplemented,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import HostEvents, Int64s, Trace, grouped


def step_kinds(timeline: Timeline) -> tuple[StepKindReport, ...]:
    """One row for each kind and batch of the steps, most steps first."""
    steps = timeline.steps
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    annotations = kinds_of(timeline.trace, steps)
    for index, said in enumerate(annotations):
        rows[said.kind, -1 if said.batch is None else said.batch].append(index)
    ordered = sorted(rows.items(), key=lambda row: (-len(row[1]), row[0]))
    return tuple(_report(steps, annotations, mine) for _, mine in ordered)


def decode_steps(timeline: Timeline) -> Int64s | None:
    """The decode steps of the batch size that most of them have: those that a trace is about. None
    without decode steps."""
    kinds = [row for row in step_kinds(timeline) if row.kind == "decode"]
    if not kinds:
        return None
    said, batch = kinds_of(timeline.trace, timeline.steps), kinds[0].batch
    mine = [i for i, one in enumerate(said) if one.kind == "decode" and one.batch == batch]
    return np.array(mine, dtype=np.int64)


def kinds_of(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    """What is known of each step.

    A marker's name says it; what that lacks, the engine annotations inside the marker on its thread
    say, as far as all outermost ones agree. In a capture of ours, the steps of batch B read
    B * (position + 1 + index) KV entries. `UNKNOWN` for inferred steps.
    """
    if steps.source != "markers":
        return (UNKNOWN,) * len(steps)
    name = trace.ranges.name[steps.marker]
    parsed = {one: parse_annotation(trace.names[one]) for one in np.unique(name).tolist()}
    found = [parsed[one] for one in name.tolist()]
    for index, inner in _inner_annotations(trace, steps.marker):
        found[index] = supplemented(found[index], common(inner))
    capture = trace.capture
    if capture is None or capture.steps != len(found) or capture.batch <= 0:
        return tuple(found)
    return tuple(
        supplemented(said, _captured(capture.batch, capture.position + 1 + index))
        for index, said in enumerate(found)
    )


def _captured(batch: int, length: int) -> StepAnnotation:
    return StepAnnotation("decode", batch, batch, 0, batch, batch * length, "decodescope")


def _inner_annotations(trace: Trace, marker: Int64s) -> Iterable[tuple[int, list[StepAnnotation]]]:
    """The outermost engine annotations inside each marker that has any, but itself."""
    ranges = trace.ranges
    names = [
        one for one in np.unique(ranges.name).tolist() if ENGINE_MARKER.match(trace.names[one])
    ]
    is_marker = np.zeros(len(ranges), dtype=np.bool_)
    is_marker[marker] = True
    candidates = np.flatnonzero(np.isin(ranges.name, names) & ~is_marker)
    if not len(candidates):
        return []
    step_of = dict(zip(marker.tolist(), range(len(marker)), strict=True))
    found: dict[int, list[StepAnnotation]] = defaultdict(list)
    both = np.sort(np.concatenate((candidates, marker)))
    for mine in grouped(both, ranges.pid, ranges.tid):
        for outer, inner in _nested(ranges, mine, is_marker[mine]):
            said = parse_annotation(trace.names[int(ranges.name[inner])])
            found[step_of[outer]].append(said)
    return found.items()


def _nested(ranges: HostEvents, mine: Int64s, is_marker: np.ndarray) -> list[tuple[int, int]]:
    """Each outermost candidate inside a marker, of one thread, with that marker."""
    found, outer, until_ns, inner_until_ns = [], -1, 0, 0
    for row, marks in zip(mine.tolist(), is_marker.tolist(), strict=True):
        start_ns, end_ns = int(ranges.start_ns[row]), int(ranges.end_ns[row])
        if marks:
            outer, until_ns, inner_until_ns = row, end_ns, start_ns
        elif outer >= 0 and inner_until_ns <= start_ns and end_ns <= until_ns:
            found.append((outer, row))
            inner_until_ns = end_ns
    return found


def _report(
    steps: Steps, annotations: tuple[StepAnnotation, ...], mine: list[int]
) -> StepKindReport:
    said = [annotations[index] for index in mine]
    times_ns = [int(steps.time_ns[index]) for index in mine]
    launched = [ns for ns, index in zip(times_ns, mine, strict=True) if steps.gpu_ops[index]]
    median_ns = _lower_median(launched or times_ns)
    return StepKindReport(
        kind=said[0].kind,
        steps=len(mine),
        batch=said[0].batch,
        kv_tokens=_lower_median([one.kv_tokens for one in said]),
        query_tokens=_lower_median([one.query_tokens for one in said]),
        median_ns=median_ns or 0,
    )


def _lower_median(values: Iterable[int | None]) -> int | None:
    known = sorted(value for value in values if value is not None)
    return known[(len(known) - 1) // 2] if known else None
