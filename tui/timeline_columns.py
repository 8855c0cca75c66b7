"""A step's timeline at the resolution of the screen, as the timeline panel draws it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from decodescope.tui.palette import BLUE, GREEN, ORANGE, PURPLE, SKY

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from decodescope.analyzer.step_timeline import StepTimeline

KIND_LABELS = ("kernel", "memcpy", "memset", "operator")
KIND_COLORS = (SKY, ORANGE, PURPLE, GREEN, BLUE)


@dataclass(frozen=True, slots=True)
class StepColumns:
    """Per column: busy fraction, op kind, largest gap in ns and its class; `span_ns` in all."""

    busy: "NDArray[np.float64]"
    kinds: "NDArray[np.int8]"
    gap_ns: "list[int]"
    gap_classes: list[str]
    span_ns: int


def step_columns(timeline: "StepTimeline", columns: int) -> StepColumns:
    """The timeline cut into `columns` equal slices of time; all arithmetic is the analyzer's."""
    raise NotImplementedError
