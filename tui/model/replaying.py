"""Where the keys of a replay lead: speeds, marks, variants and times that a user types."""

import math
import re
from typing import Literal

from decodescope.analyzer.recordings.recording import RecordingMark
from decodescope.tui.link.base import Playback

SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, math.inf)
_TIME = re.compile(r"(?:(?:(\d{1,6}):)?(\d{1,6}):)?(\d{1,6}(?:\.\d{0,9})?)", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{0,9})?)\s*%", re.ASCII)


def speed_words(factor: float) -> str:
    """ "8x", or "as fast as possible"."""
    return "as fast as possible" if math.isinf(factor) else f"{factor:g}x"


def next_speed(factor: float, steps: int) -> float:
    """The speed `steps` places faster (or slower) in `SPEEDS`, at most the last."""
    place = SPEEDS.index(factor) + steps
    return SPEEDS[min(max(place, 0), len(SPEEDS) - 1)]


def neighbour_mark(
    playback: Playback, kind: Literal["window", "switch"], forward: bool
) -> RecordingMark | None:
    """The next mark of this kind after the position, or the last one before it."""
    marks = [mark for mark in playback.marks if mark.kind == kind]
    if forward:
        return next((mark for mark in marks if mark.t_ns > playback.position_ns), None)
    return next((mark for mark in reversed(marks) if mark.t_ns < playback.position_ns), None)


def last_of(playback: Playback, variant: str) -> RecordingMark | None:
    """The last window of `variant`, or if it has none, the last time that it began to run."""
    marks = [mark for mark in reversed(playback.marks) if mark.variant == variant]
    windows = (mark for mark in marks if mark.kind == "window")
    return next(windows, marks[0] if marks else None)


def typed_time_ns(text: str, playback: Playback) -> int | None:
    """The place that "90", "1:30", "1:02:03.5" or "50 %" means; None if it means none."""
    if percent := _PERCENT.fullmatch(text.strip()):
        place_ns = float(percent[1]) / 100 * playback.duration_ns
    elif time := _TIME.fullmatch(text.strip()):
        hours, minutes, seconds = (float(part or 0) for part in time.groups())
        place_ns = (hours * 3600 + minutes * 60 + seconds) * 1e9
    else:
        return None
    return min(round(place_ns), playback.duration_ns)
