"""The kind of each step, its batch and its KV length: from annotations, the capture, Python frames
or the work of the step."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from decodescope.analyzer.timing.step_annotations import (
    ENGINE_MARKER,
    StepAnnotation,
    common,
    parse_annotation,
    supplemented,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import HostEvents, Int64s, Trace, grouped


def main_kind_steps(timeline: Timeline) -> Int64s:
    """The steps that a trace is about: the decode steps of the batch size that most of them have;
    without decode steps, those of the kind that most steps have (of equally many, the first).

    Steps that launched no op count only if no step launched any.
    """
    steps = timeline.steps
    launched = np.flatnonzero(steps.gpu_ops)
    candidates = (launched if len(launched) else np.arange(len(steps))).tolist()
    annotations = kinds_of(timeline.trace, steps)
    decode = [index for index in candidates if annotations[index].kind == "decode"]
    if decode:
        batches = Counter(annotations[index].batch for index in decode)
        batch = max(batches, key=batches.__getitem__)
        main = [index for index in decode if annotations[index].batch == batch]
    else:
        kinds = Counter(annotations[index].kind for index in candidates)
        kind = max(kinds, key=kinds.__getitem__, default="unknown")
        main = [index for index in candidates if annotations[index].kind == kind]
    return np.array(main, dtype=np.int64)


def kinds_of(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    """The known facts of each step.

    A marker's name tells them; those that it lacks are told by the engine annotations inside the
    marker on its thread, as far as all outermost ones agree. In a capture of ours, the steps of
    batch B read B * (position + 1 + index) KV entries. Of steps that no range marks, the Python
    frames or else the work tell the kind.
    """
    if steps.source != "markers":
        return _by_frames_or_work(trace, steps) if len(steps) else ()
    name = trace.ranges.name[steps.marker]
    parsed = {
        name_index: parse_annotation(trace.names[name_index])
        for name_index in np.unique(name).tolist()
    }
    annotations = [parsed[name_index] for name_index in name.tolist()]
    for index, inner in _inner_annotations(trace, steps.marker):
        annotations[index] = supplemented(annotations[index], common(inner))
    if len(trace.frames) and any(annotation.engine == "sglang" for annotation in annotations):
        from decodescope.analyzer.timing.frame_steps import drafting

        # A draft worker's forwards are annotated as any other's.
        drafts = drafting(trace, trace.ranges.take(steps.marker).starts)
        for index in np.flatnonzero(drafts).tolist():
            annotations[index] = replace(annotations[index], kind="draft")
    capture = trace.capture
    if capture is None or capture.steps != len(annotations) or capture.batch <= 0:
        return tuple(annotations)
    batch, length = capture.batch, capture.position + 1
    own = StepAnnotation("decode", batch, batch, 0, batch, engine="decodescope")
    return tuple(
        supplemented(annotation, replace(own, kv_tokens=batch * (length + index)))
        for index, annotation in enumerate(annotations)
    )


def _by_frames_or_work(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    from decodescope.analyzer.timing.frame_steps import engine_of, frame_kinds
    from decodescope.analyzer.timing.work_kinds import work_kinds

    kinds, tokens = work_kinds(trace, steps.op_step, steps.busy_ns)
    engines: list[str | None] = [None] * len(steps)
    if steps.source == "frames":
        by_frame = frame_kinds(trace, steps.marker, steps.host)
        kinds = [kinds[i] if kind == "unknown" else kind for i, kind in enumerate(by_frame)]
        frame_names = trace.frames.name[steps.marker].tolist()
        engines = [engine_of(trace.names[name]) for name in frame_names]
    return tuple(
        StepAnnotation(kind=kind, query_tokens=number, engine=engine)
        for kind, number, engine in zip(kinds, tokens, engines, strict=True)
    )


def _inner_annotations(trace: Trace, marker: Int64s) -> Iterable[tuple[int, list[StepAnnotation]]]:
    """The outermost engine annotations inside each marker that has any, but itself."""
    ranges = trace.ranges
    names = [
        name_index
        for name_index in np.unique(ranges.name).tolist()
        if ENGINE_MARKER.match(trace.names[name_index])
    ]
    is_marker = np.zeros(len(ranges), dtype=np.bool_)
    is_marker[marker] = True
    candidates = np.flatnonzero(np.isin(ranges.name, names) & ~is_marker)
    if not len(candidates):
        return []
    step_of = dict(zip(marker.tolist(), range(len(marker)), strict=True))
    inner_annotations: dict[int, list[StepAnnotation]] = defaultdict(list)
    both = np.sort(np.concatenate((candidates, marker)))
    for range_rows in grouped(both, ranges.pid, ranges.tid):
        for outer, inner in _nested(ranges, range_rows, is_marker[range_rows]):
            annotation = parse_annotation(trace.names[int(ranges.name[inner])])
            inner_annotations[step_of[outer]].append(annotation)
    return inner_annotations.items()


def _nested(ranges: HostEvents, range_rows: Int64s, is_marker: np.ndarray) -> list[tuple[int, int]]:
    """Each outermost candidate inside a marker, of one thread, with that marker."""
    pairs, outer, until_ns, inner_until_ns = [], -1, 0, 0
    for row, marks in zip(range_rows.tolist(), is_marker.tolist(), strict=True):
        start_ns, end_ns = int(ranges.start_ns[row]), int(ranges.end_ns[row])
        if marks:
            outer, until_ns, inner_until_ns = row, end_ns, start_ns
        elif outer >= 0 and inner_until_ns <= start_ns and end_ns <= until_ns:
            pairs.append((outer, row))
            inner_until_ns = end_ns
    return pairs
