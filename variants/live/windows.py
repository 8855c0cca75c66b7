"""When to capture a window, and which captured files to keep."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path

FIRST_AFTER_STEPS = 20
MIN_INTERVAL_NS = 5_000_000_000
MAX_SHARE_OF_TIME = 0.05
KEPT_FILES = 4


class WindowSchedule:
    """The windows of one variant: the first soon after it starts, others every `MIN_INTERVAL_NS`.

    After a window that took t, the next one waits at least t / `MAX_SHARE_OF_TIME`, so windows take
    at most that share of the time.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._not_before_ns: int | None = None

    def stepped(self, steps: int) -> None:
        self._steps += steps

    def due(self, now_ns: int) -> bool:
        if self._not_before_ns is None:
            return self._steps >= FIRST_AFTER_STEPS
        return now_ns >= self._not_before_ns

    def captured(self, start_ns: int, end_ns: int) -> None:
        """A window was captured, or failed, between `start_ns` and `end_ns`."""
        pause_ns = max(MIN_INTERVAL_NS, round((end_ns - start_ns) / MAX_SHARE_OF_TIME))
        self._not_before_ns = end_ns + pause_ns


class WindowFiles:
    """Names `window-NNNN.json` files in a folder and deletes all but the last `KEPT_FILES`.

    Numbering continues after existing files: an earlier worker left them, and the app may be
    reading them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = max((_number(path) for path in folder.glob("window-*.json")), default=0)
        self._written: deque[Sequence[Path]] = deque()

    def next_path(self) -> Path:
        self._number += 1
        return self._folder / f"window-{self._number:04d}.json"

    def written(self, window: Sequence[Path]) -> None:
        """Call when the files of a window are complete; deletes the oldest one's beyond the
        limit."""
        self._written.append(window)
        while len(self._written) > KEPT_FILES:
            for path in self._written.popleft():
                path.unlink(missing_ok=True)


def _number(path: Path) -> int:
    digits = path.name.removeprefix("window-").partition(".")[0]
    return int(digits) if digits.isdecimal() else 0
