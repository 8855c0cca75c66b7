"""The figures of a planted trace, from what its host and device did, following the definitions word
by word: no figure comes from the analyzer."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from operator import attrgetter

from decodescope.analyzer.schema.step_report import StepKind
from tests.helpers.planted.decode_traces import (
    COPY,
    FILL,
    KERNEL,
    Plan,
    RecordedOp,
    Recording,
    Step,
    record,
)
from tests.helpers.slow_gaps import SlowGap, slow_gaps

Parts = dict[str, int]
# The parts that are no role of a kernel; copies of the driver and kernels that copy are one part.
COMMUNICATION, COPIES = "communication", "memcpy"
HOST_CLASSES = ("host_wait", "launch_call", "launch_latency")


@dataclass(frozen=True)
class _PlantedStep:
    step: Step
    recording: Recording
    start_ns: int
    time_ns: int
    held_ns: int
    is_followed: bool
    ops: int

    @property
    def parts(self) -> Parts:
        return parts_between(self.recording, self.start_ns, self.start_ns + self.time_ns)


@dataclass(frozen=True)
class _Windows:
    recordings: tuple[Recording, ...]

    @property
    def parts(self) -> Parts:
        parts: Counter[str] = Counter()
        for recording in self.recordings:
            start_ns = min(op.start for op in recording.ops)
            parts.update(parts_between(recording, start_ns, max(op.end for op in recording.ops)))
        return dict(parts)


@dataclass(frozen=True)
class Truth:
    """`kinds` counts the steps of each kind. `steps` of them are of the main kind, batch and sort;
    `step_ns` is their median time, `divided` are those that take so long, and `interruptions_ns` is
    what the holds cost the devices. Without steps, `divided` is the window of all devices."""

    kinds: dict[StepKind, int]
    kind: StepKind
    batch: int | None
    steps: int
    step_ns: int | None
    divided: tuple[_PlantedStep | _Windows, ...]
    interruptions_ns: int

    @property
    def parts(self) -> tuple[Parts, ...]:
        """Those of each that is divided; takes longer than all else here."""
        return tuple(each.parts for each in self.divided)


def truth_of(plans: Sequence[Plan]) -> Truth:
    """Of plans that each have a device of their own; without holds, steps take their course."""
    planted = [step for plan in plans for step in _steps_of(plan)]
    kinds = Counter(each.step.kind for each in planted)
    # Of equally many, the first.
    kind = "decode" if "decode" in kinds else max(kinds, key=kinds.__getitem__)
    rows = [each for each in planted if each.step.kind == kind]
    batches = Counter(each.step.batch for each in rows)
    batch = max(batches, key=batches.__getitem__)
    if kind == "decode":
        rows = [each for each in rows if each.step.batch == batch]
    rows = _of_one_sort(rows)
    followed = [each for each in rows if each.is_followed]
    times_ns = sorted(each.time_ns for each in followed or rows)
    step_ns = times_ns[(len(times_ns) - 1) // 2]
    return Truth(
        kinds=dict(kinds),
        kind=kind,
        batch=batch if len({each.step.batch for each in rows}) == 1 else None,
        steps=len(rows),
        step_ns=step_ns,
        divided=tuple(each for each in followed or rows if each.time_ns == step_ns),
        interruptions_ns=sum(each.held_ns for each in planted),
    )


def _of_one_sort(rows: Sequence[_PlantedStep]) -> list[_PlantedStep]:
    """Without those with 1.5 times as many ops as others, and 10 more, or as few."""
    sorts: list[list[_PlantedStep]] = [[]]
    for row in sorted(rows, key=attrgetter("ops")):
        before = sorts[-1][-1].ops if sorts[-1] else row.ops
        if row.ops >= 1.5 * before and row.ops >= before + 10:
            sorts.append([])
        sorts[-1].append(row)
    main = max(sorts, key=lambda sort: (len(sort), sort[0].ops if sort else 0))
    return [row for row in rows if row in main]


def truth_of_windows(plans: Sequence[Plan]) -> Truth:
    """Truth that holds without steps."""
    return Truth({}, "unknown", None, 0, None, (_Windows(tuple(map(record, plans))),), 0)


def _steps_of(plan: Plan) -> Iterator[_PlantedStep]:
    usual, held = record(plan.without_holds()), record(plan)
    starts, times_ns, held_ns = step_starts(usual), step_times(usual), step_times(held)
    later = dict(pairwise(starts))
    for index, time_ns in times_ns.items():
        yield _PlantedStep(
            plan.steps[index],
            usual,
            starts[index],
            time_ns,
            held_ns[index] - time_ns,
            index in later and starts[later[index]] > starts[index],
            sum(op.step == index for op in usual.ops),
        )


def step_starts(recording: Recording) -> dict[int, int]:
    """The start of the first op of each step."""
    return {
        step: min(op.start for op in recording.ops if op.step == step)
        for step in sorted({op.step for op in recording.ops if op.step >= 0})
    }


def step_times(recording: Recording) -> dict[int, int]:
    """From each step's first op to that of the next; the GPU span of the last one, and of one that
    begins after the next one, on another stream."""
    starts = step_starts(recording)
    later = dict(pairwise(starts))
    ends_ns = {}
    for step, start_ns in starts.items():
        end_ns = starts[later[step]] if step in later else start_ns
        last_ns = max(op.end for op in recording.ops if op.step == step)
        ends_ns[step] = end_ns if end_ns > start_ns else last_ns
    return {step: ends_ns[step] - start_ns for step, start_ns in starts.items()}


def parts_between(recording: Recording, start_ns: int, end_ns: int) -> Parts:
    """The attributed time of each part between two times; adds up to the whole.

    Of the ops of a stream, an instant belongs to the first that runs in it. Kernels of several
    streams share it equally; without kernels it is of copies, then of communication; else of a
    class of idle time.
    """
    plan = recording.plan
    gaps = slow_gaps(recording.ops, recording.calls, {plan.device}, has_floor=not plan.coarse)
    running = [op for op in recording.ops if op.start < end_ns and op.end > start_ns]
    idle = [piece for gap in gaps for piece in _idle_pieces(gap)]
    times = {start_ns, end_ns, *(op.start for op in running), *(op.end for op in running)}
    times |= {time for begin, end, _ in idle for time in (begin, end)}
    parts: dict[str, Fraction] = {}
    for begin, end in pairwise(sorted(time for time in times if start_ns <= time <= end_ns)):
        names = _counted([op for op in running if op.start <= begin < op.end])
        names = names or [name for since, until, name in idle if since <= begin < until]
        for name in names:
            parts[name] = parts.get(name, Fraction()) + Fraction(end - begin, len(names))
    assert all(ns.denominator == 1 for ns in parts.values()), "plan even lengths for overlaps"
    return {name: int(ns) for name, ns in parts.items()}


def _counted(running: list[RecordedOp]) -> list[str]:
    """The parts that an instant counts for, one for each op. Of ops that begin together, the
    shorter is first."""
    last_first = sorted(running, key=attrgetter("start", "end"), reverse=True)
    first = {op.stream: op for op in last_first}.values()
    communication = [op.part for op in first if op.part == COMMUNICATION]
    copies = [COPIES for op in first if op.category in (COPY, FILL)]
    kernels = [op.part for op in first if op.part != COMMUNICATION and op.category == KERNEL]
    return kernels or copies[:1] or communication[:1]


def _idle_pieces(gap: SlowGap) -> Iterator[tuple[int, int, str]]:
    at = gap.prev.end
    for name, length in gap.pieces:
        yield at, at + length, name.partition(":")[0]
        at += length
