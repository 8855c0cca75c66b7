"""Where what held a device up lies among its gaps."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.timing.gaps import Gaps
from decodescope.analyzer.timing.held_up.comparing import HeldUp


def held_up_in_gaps(gaps: Gaps, held_up: Sequence[HeldUp]) -> dict[int, list[HeldUp]]:
    """What held the device up during each gap, by the gap's row and in order of time; gaps that
    nothing held up are left out."""
    found: dict[int, list[HeldUp]] = {}
    for one in sorted(held_up, key=lambda one: one.start_ns):
        inside = (gaps.start_ns < one.end_ns) & (gaps.end_ns > one.start_ns)
        for row in np.flatnonzero(inside & (gaps.device == one.device)).tolist():
            found.setdefault(row, []).append(one)
    return found
