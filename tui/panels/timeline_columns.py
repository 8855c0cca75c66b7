"""A step's timeline at the resolution of the screen, as the timeline panel draws it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.analyzer.timing.step_timeline import StepTimeline


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Per column: busy fraction, family of the ops ("" for none), largest gap and its class."""

    busy: list[float]
    families: list[str]
    gap_ns: list[int]
    gap_classes: list[str]
    span_ns: int


def step_columns(timeline: "StepTimeline", columns: int) -> StepColumns:
    """The timeline cut into `columns` equal slices of time; all arithmetic is the analyzer's."""
    from decodescope.analyzer.timing.op_families import FAMILIES, dominant_family
    from decodescope.analyzer.timing.step_timeline import busy_fraction, gap_class_name, largest_gap

    gap_ns, gap_classes = largest_gap(timeline, columns)
    return StepColumns(
        busy=busy_fraction(timeline, columns).tolist(),
        families=[FAMILIES[index] if index >= 0 else ""
                  for index in dominant_family(timeline, columns).tolist()],
        gap_ns=gap_ns.tolist(),
        gap_classes=[gap_class_name(index) for index in gap_classes.tolist()],
        span_ns=timeline.length_ns,
    )  # fmt: skip
