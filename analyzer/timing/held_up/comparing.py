"""How gaps and ops are compared with others, and what one that is held up is known by."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.timing.held_up.habits import Habit, kinds_by_name, upper_median
from decodescope.analyzer.timing.held_up.host_record import Why
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int64s, rows_by

MIN_HOLD_NS = 100_000
OUTLIER_FACTOR = 10
NAME_CELLS = 100
STEP_SHARE = 0.2
SPREADS = 20
FEW, MOST = 3, 100
UNSEEN_STEPS = 3
RARE_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class HeldUp:
    """The device did nothing for the steps in [start, end): `why` names the cause, `evidence` says
    what shows it. `call` indexes `Trace.calls`, `op` (that ended the gap, or ran long)
    `Trace.ops`; -1 for none. `host` is when the host was held up, None if it was not: it may have
    been ahead of the device. `before_ops`: it lies before the first op of the trace."""

    device: int
    start_ns: int
    end_ns: int
    why: Why
    evidence: str
    call: int
    op: int
    host: tuple[int, int] | None = None
    before_ops: bool = False

    @property
    def length_ns(self) -> int:
        """end - start."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """The kind of each step as a number, the median time of its kind, and that of all steps (0
    without any)."""

    kind: Int64s
    of_step_ns: Int64s
    step_ns: int


def scale_of(timeline: Timeline) -> Scale:
    """What gaps and ops of a timeline are measured against; medians over the steps with ops."""
    steps = timeline.steps
    if not len(steps):
        none = np.zeros(0, dtype=np.int64)
        return Scale(none, none, 0)
    kinds = kinds_by_name(timeline)
    number = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
    kind = np.array([number[one] for one in kinds], dtype=np.int64)
    launched = np.flatnonzero(steps.gpu_ops)
    step_ns = upper_median(steps.time_ns[launched]) if len(launched) else 0
    of_step_ns = np.full(len(steps), step_ns, dtype=np.int64)
    for mine in rows_by(kind[launched]).values():
        of_step_ns[launched[mine]] = upper_median(steps.time_ns[launched[mine]])
    return Scale(kind, of_step_ns, step_ns)


def least_hold_ns(timeline: Timeline, scale: Scale, ops: Int64s) -> Int64s:
    """How long a gap before each of `ops` must at least be: 100 µs and 20 % of the median step."""
    step = timeline.steps.op_step[ops]
    of_step_ns = np.append(scale.of_step_ns, scale.step_ns)[step]
    return np.maximum((of_step_ns * STEP_SHARE).astype(np.int64), MIN_HOLD_NS)


def is_outside(values_ns: Int64s, typical_ns: Int64s | int, spread_ns: Int64s | int) -> Bools:
    """Whether each value is far above what is typical, in proportion and in spreads."""
    return np.asarray(
        (values_ns > OUTLIER_FACTOR * typical_ns) & (values_ns > typical_ns + SPREADS * spread_ns)
    )


def rare(habit: Habit, held: Bools) -> Bools:
    """`held` without those at places where more than two instances, and more than 10 %, are."""
    if not held.any():
        return held
    counts = np.bincount(habit.place[held], minlength=int(habit.place.max()) + 1)[habit.place]
    return held & ((counts < FEW) | (counts <= RARE_SHARE * habit.instances))


def longest(lengths_ns: Int64s, chosen: Bools) -> list[int]:
    """The places of the longest `MOST` chosen lengths, in order."""
    places = np.flatnonzero(chosen)
    order = np.argsort(-lengths_ns[places], kind="stable")[:MOST]
    return sorted(places[order].tolist())
