"""How a process that works for another one ends with it."""

import ctypes
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent, take its SIGTERM as `SystemExit`, and die when it dies.

    On Linux the system kills this process when its parent ends, even in the midst of a long
    compile. Elsewhere the end of the channel to the parent is noticed when it is next used.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit
