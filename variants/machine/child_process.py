"""Worker processes: they end with their parent, exit quickly, and report errors."""

import ctypes
import os
import select
import signal
import sys
import traceback
from typing import NoReturn

from decodescope.analyzer.errors import known_error
from decodescope.analyzer.protocol.messages import Failure

_PR_SET_PDEATHSIG = 1


def end_with_parent(channel: int) -> None:
    """Leave Ctrl-C to the parent, turn its SIGTERM into `SystemExit`, and die when it dies, or
    at once if it has: then nobody holds the other end of `channel`, the descriptor of a pipe that
    this process writes, or of a socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    die_with_parent()
    closed = select.poll()
    closed.register(channel, 0)
    if closed.poll(0):
        exit_now(1)


def die_with_parent() -> None:
    """On Linux the system kills this process when its parent ends, even during a long compilation.
    Elsewhere it ends when it next uses the closed channel to the parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def failure_of(error: Exception) -> Failure:
    """The fatal `Failure` for `error`; stderr gets the traceback of an unexpected error."""
    known = known_error(error)
    if known is not error:
        traceback.print_exception(error)
    return Failure(message=str(known), exit_code=known.exit_code, fatal=True)


def exit_now(code: int) -> NoReturn:
    """End this process without tearing down torch.

    The teardown takes a second or more, and the parent waits for this process to end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
