"""An interruption of one device, and which interruptions lie in which gap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from decodescope.analyzer.timing.gaps import Gaps

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


@dataclass(frozen=True, slots=True)
class Interruption:
    """The device did nothing for the steps in [start, end), for a cause that `evidence` shows.

    `call` indexes `Trace.calls` (-1 for none), `op` (that ended the gap, or ran long) `Trace.ops`.
    """

    device: int
    start_ns: int
    end_ns: int
    cause: Cause
    evidence: str
    call: int
    op: int

    @property
    def length_ns(self) -> int:
        return self.end_ns - self.start_ns


def interruptions_by_gap(
    gaps: Gaps, interruptions: Sequence[Interruption]
) -> dict[int, list[Interruption]]:
    """The interruptions during each gap, by the gap's row and in order of time; gaps without one
    are left out."""
    by_gap: dict[int, list[Interruption]] = {}
    for interruption in sorted(interruptions, key=lambda interruption: interruption.start_ns):
        inside = (gaps.start_ns < interruption.end_ns) & (gaps.end_ns > interruption.start_ns)
        for row in np.flatnonzero(inside & (gaps.device == interruption.device)).tolist():
            by_gap.setdefault(row, []).append(interruption)
    return by_gap
