"""The kind of each step, its batch and its KV length: from annotations, the capture, Python frames
or the work of the step.

The tokens that a step computes are the blocks of vLLM's kernels that write the KV cache (one a
token), or at least the FLOPs ÷ bytes of its products of known shapes: m rows of elements of two
bytes give 2 m n k ÷ 2 (m k + k n + m n), which is below m.

- decode: one token, or only attention kernels that are made for decoding
- prefill: `MANY_TOKENS` or more, and no attention kernel that is made for decoding
- prefill among others: several times (`SEVERAL`) the GPU time, and tokens if known, of the quarter
  of steps that take least, and attention kernels or launch shapes that the lighter steps do not
  have; the lighter steps then decode
- unknown: anything else, steps without attention, and those that compute gradients

Steps that should be alike may be of several models or engines, or the window cuts one. They are of
different sorts if they launch `UNLIKE` times as many ops as others, and `UNLIKE_OPS` more, or if
they are of different processes that share a device.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.step_report import StepKind
from decodescope.analyzer.timing.intervals import containing, outermost
from decodescope.analyzer.timing.launches import threads_at
from decodescope.analyzer.timing.step_annotations import (
    ENGINE_MARKER,
    StepAnnotation,
    common,
    parse_annotation,
    supplemented,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Int64s, Trace, rows_by, rows_in

MANY_TOKENS = 1_024
SEVERAL = 3
UNLIKE, UNLIKE_OPS = 1.5, 10
_CACHE_WRITE = re.compile(r"(?:^|[^a-z_])(?:reshape_and_cache|concat_and_cache_mla)")
_DECODING = re.compile(
    r"decode|paged_attention_(?:v[12]|ll4mi)|unified_attention_3d|reduce_segments|xqa"
    r"|mmha|masked_multihead",
    re.IGNORECASE,
)
_BACKWARD = re.compile(r"bwd|backward", re.IGNORECASE)


def steps_with_ops(steps: Steps) -> Int64s:
    """The steps that launched an op; all of them if none did."""
    launched = np.flatnonzero(steps.gpu_ops)
    return launched if len(launched) else np.arange(len(steps))


def main_kind_steps(steps: Steps, annotations: Sequence[StepAnnotation]) -> Int64s:
    """The steps that a trace is about, of those with ops: the decode steps of the batch size that
    most of them have; without decode steps, those of the kind that most steps have (of equally
    many, the first); of several sorts the one that most of these have, of equally many the one
    with most ops."""
    candidates = steps_with_ops(steps).tolist()
    decode = [index for index in candidates if annotations[index].kind == "decode"]
    if decode:
        batches = Counter(annotations[index].batch for index in decode)
        batch = max(batches, key=batches.__getitem__)
        main = [index for index in decode if annotations[index].batch == batch]
    else:
        kinds = Counter(annotations[index].kind for index in candidates)
        kind = max(kinds, key=kinds.__getitem__, default="unknown")
        main = [index for index in candidates if annotations[index].kind == kind]
    sorts = Counter(annotations[index].sort for index in main)
    most = max(sorts, key=lambda sort: (sorts[sort], -sort), default=0)
    return np.array([index for index in main if annotations[index].sort == most], dtype=np.int64)


def kinds_of(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    """The known facts of each step, and its sort."""
    annotations = _known_facts(trace, steps)
    sharing = sharing_processes(trace, steps)
    processes = np.zeros(len(steps), dtype=np.int64) if sharing is None else sharing
    alike: dict[tuple[StepKind, int | None], list[int]] = defaultdict(list)
    for index in np.flatnonzero(steps.gpu_ops).tolist():
        alike[alike_by(annotations[index])].append(index)
    sorts = np.zeros(len(steps), dtype=np.int64)
    for indices in alike.values():
        sorts[indices] = _sorts(steps.gpu_ops[indices], processes[indices])
    return tuple(
        replace(annotation, sort=sort) if sort else annotation
        for annotation, sort in zip(annotations, sorts.tolist(), strict=True)
    )


def alike_by(facts: StepAnnotation) -> tuple[StepKind, int | None]:
    """A key that is equal for steps that should be alike: only decode steps differ by batch."""
    return facts.kind, facts.batch if facts.kind == "decode" else None


def sharing_processes(trace: Trace, steps: Steps) -> Int64s | None:
    """The process whose call launched the first op of each step, if steps of several processes
    share a device; None if none do."""
    launched = np.flatnonzero((steps.op_step >= 0) & (trace.ops.launch >= 0))[::-1]
    processes = np.zeros(len(steps), dtype=np.int64)
    processes[steps.op_step[launched]] = trace.calls.pid[trace.ops.launch[launched]]
    with_ops = np.flatnonzero(steps.gpu_ops)
    for on_device in rows_by(steps.device[with_ops]).values():
        if len(np.unique(processes[with_ops[on_device]])) > 1:
            return processes
    return None


def _sorts(gpu_ops: Int64s, processes: Int64s) -> Int64s:
    """A number for each step, those with most ops first: equal for steps of one process between
    whose numbers of ops there is no jump."""
    values, value = np.unique(gpu_ops, return_inverse=True)
    jumps = (values[1:] >= UNLIKE * values[:-1]) & (values[1:] >= values[:-1] + UNLIKE_OPS)
    sizes = np.append(0, np.cumsum(jumps))[value]
    pairs = np.stack((-sizes, processes), axis=1)
    return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)


def _known_facts(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    """The known facts of each step.

    A marker's name tells them; those that it lacks are told by the engine annotations inside the
    marker on its thread, as far as all outermost ones agree. In a capture of ours, the steps of
    batch B read B * (position + 1 + index) KV entries. Of steps that no range marks, the Python
    frames tell the kind. Where neither does, the work of a step tells it.
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
    if any(annotation.kind == "unknown" for annotation in annotations):
        kinds, tokens = _work_kinds(trace, steps.op_step, steps.busy_ns)
        annotations = [
            supplemented(annotation, StepAnnotation(kind, query_tokens=number))
            if annotation.kind == "unknown"
            else annotation
            for annotation, kind, number in zip(annotations, kinds, tokens, strict=True)
        ]
    capture = trace.capture
    if capture is None or capture.batch <= 0:
        return tuple(annotations)
    # Of merged ranks, each has every step.
    whole = len(annotations) in (capture.steps, capture.steps * capture.tp)
    batch, length = capture.batch, capture.position + 1
    own = StepAnnotation("decode", batch, batch, engine="decodescope")
    # Of a window that was cut, any step may be the first. Ranks need not alternate on the host.
    number = np.zeros(len(steps), dtype=np.int64)
    for of_device in rows_by(steps.device).values() if whole else ():
        number[of_device] = np.arange(len(of_device))
    return tuple(
        supplemented(annotation, replace(own, kv_tokens=batch * (length + place)))
        for annotation, place in zip(annotations, number.tolist(), strict=True)
    )


def _by_frames_or_work(trace: Trace, steps: Steps) -> tuple[StepAnnotation, ...]:
    from decodescope.analyzer.timing.frame_steps import engine_of, frame_kinds

    kinds, tokens = _work_kinds(trace, steps.op_step, steps.busy_ns)
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
    annotates = trace.by_name(ranges.name, ENGINE_MARKER.match)
    candidates = np.setdiff1d(np.flatnonzero(annotates), marker)
    inner_annotations: dict[int, list[StepAnnotation]] = defaultdict(list)
    for rows, steps in threads_at(ranges, candidates, ranges.take(marker).starts):
        step = np.append(steps, -1)[containing(ranges.take(marker[steps]), ranges.start_ns[rows])]
        around = marker[step]
        inside = (step >= 0) & (rows > around) & (ranges.end_ns[rows] <= ranges.end_ns[around])
        inner, step = rows[inside], step[inside]
        outer = outermost(ranges.take(inner))
        for row, index in zip(inner[outer].tolist(), step[outer].tolist(), strict=True):
            annotation = parse_annotation(trace.names[int(ranges.name[row])])
            inner_annotations[index].append(annotation)
    return inner_annotations.items()


def _work_kinds(
    trace: Trace, op_step: Int64s, busy_ns: Int64s
) -> tuple[list[StepKind], list[int | None]]:
    """The kind of each step, and the tokens that it computes, None if no launch shape tells.

    `op_step` is the step of each op, -1 for none; `busy_ns` the GPU time of each step.
    """
    ops, count = trace.ops, len(busy_ns)
    in_step = np.flatnonzero(op_step >= 0)
    name = ops.name[in_step]
    attention = in_step[trace.by_name(name, lambda text: kernel_meaning(text).kind == "attention")]
    step = op_step[attention]
    attentions = np.bincount(step, minlength=count)
    decoding = trace.by_name(ops.name[attention], _DECODING.search)
    for_decoding = np.bincount(step[decoding], minlength=count)
    signature = _signatures(trace, attention, step, count)
    writes = in_step[trace.by_name(name, _CACHE_WRITE.search)]
    blocks = _blocks(trace, writes, op_step, count)
    tokens = np.where(blocks > 0, blocks, _rows_of_products(trace, in_step, op_step, count))

    backward = trace.by_name(ops.name[attention], _BACKWARD.search)
    attentions[np.unique(step[backward])] = 0
    decode = (attentions > 0) & ((tokens == 1) | (for_decoding == attentions))
    prefill = (attentions > 0) & (tokens >= MANY_TOKENS) & (for_decoding == 0)
    unknown = ~decode & ~prefill
    light_ns = np.sort(busy_ns)[(count - 1) // 4] if count else 0
    light = busy_ns <= SEVERAL * light_ns
    light_tokens = tokens[light & (tokens > 0)]
    most_light = SEVERAL * int(light_tokens.max(initial=0))
    more_tokens = (tokens == 0) | (tokens >= most_light)
    unlike = (attentions > 0) & ~light & ~np.isin(signature, signature[light])
    prefill |= unknown & unlike & more_tokens
    decode |= unknown & light & (attentions > 0) & bool((prefill & ~light).any())
    kinds: list[StepKind] = [
        "decode" if decodes else "prefill" if prefills else "unknown"
        for decodes, prefills in zip(decode.tolist(), prefill.tolist(), strict=True)
    ]
    return kinds, [number or None for number in blocks.tolist()]


def _signatures(trace: Trace, attention: Int64s, step: Int64s, count: int) -> Int64s:
    """A number for each step, equal for steps whose attention kernels have the same names and
    launch shapes: the sum of a random number for each distinct pair, modulo 2**64."""
    shapes = len(trace.shapes) + 1
    pair = trace.ops.name[attention].astype(np.int64) * shapes + trace.ops.shape[attention] + 1
    pairs, number = np.unique(pair, return_inverse=True)
    distinct = np.unique(step * len(pairs) + number)
    random = np.random.default_rng(0).integers(0, 2**63, len(pairs))
    signature = np.zeros(count, dtype=np.int64)
    np.add.at(signature, distinct // max(len(pairs), 1), random[distinct % max(len(pairs), 1)])
    return signature


def _blocks(trace: Trace, writes: Int64s, op_step: Int64s, count: int) -> Int64s:
    """The most blocks along x of each step's ops `writes`, 0 if unknown."""
    along_x = [shape.grid[0] if shape.grid else 0 for shape in trace.shapes]
    blocks = np.zeros(count, dtype=np.int64)
    np.maximum.at(blocks, op_step[writes], np.array([*along_x, 0])[trace.ops.shape[writes]])
    return blocks


def _rows_of_products(trace: Trace, in_step: Int64s, op_step: Int64s, count: int) -> Int64s:
    """The most rows that each step's products have at least, 0 if unknown."""
    rows = np.zeros(count, dtype=np.int64)
    row = rows_in(trace.work.external_id, trace.ops.external_id[in_step])
    known, work = in_step[row >= 0], trace.work.take(row[row >= 0])
    at_least = np.rint(work.flops / np.maximum(work.bytes, 1)).astype(np.int64)
    np.maximum.at(rows, op_step[known], at_least)
    return rows
