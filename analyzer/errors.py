"""The errors a user can cause. Each message is one line: what, where, what to do.

DecodescopeError
├── InputError          exit 2: bad usage or bad input
│   ├── TraceError      a file that is not a trace, or a broken one
│   └── ModelError      a model, checkpoint or workload that cannot be decoded
├── MissingRequirement  exit 3: no CUDA, torch not installed, model not found, out of GPU memory
├── InternalError       exit 70: an error that nobody foresaw
├── RegressionFound     exit 1: a gate failed
└── TooNoisy            exit 4: a strict gate could not decide
"""

import errno
import os
import signal
from traceback import walk_tb

# Entry points of the packages that add variants.
VARIANTS_GROUP = "decodescope.variants"


class DecodescopeError(Exception):
    """Base of every error that is shown to the user as one line; `exit_code` ends the command."""

    exit_code = 2


class InputError(DecodescopeError):
    """Bad usage or bad input."""


class TraceError(InputError):
    """A file that is not a trace, or one too broken to use."""


class ModelError(InputError):
    """A model, checkpoint or workload that cannot be decoded as requested."""


class MissingRequirement(DecodescopeError):
    """The environment lacks something: a CUDA device, a package, a model, GPU memory."""

    exit_code = 3


class InternalError(DecodescopeError):
    """An error that nobody foresaw: a fault of decodescope, or of a library."""

    exit_code = 70  # EX_SOFTWARE


class RegressionFound(DecodescopeError):
    """A figure takes longer than a gate allows."""

    exit_code = 1


class TooNoisy(DecodescopeError):
    """A strict gate could not decide, because its samples vary too much."""

    exit_code = 4


# What the operating system refuses for lack of something, whatever the program.
_LACKING = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
)
_UNUSABLE_NAMES = (errno.ENAMETOOLONG, errno.ELOOP)


def known_error(error: Exception) -> DecodescopeError:
    """`error` as one of ours: itself, an unusable file name, a lack of the machine, an `InputError`
    if a package that adds a variant failed, or an `InternalError`."""
    if isinstance(error, DecodescopeError):
        return error
    if isinstance(error, OSError) and error.errno in _UNUSABLE_NAMES:
        return InputError(f"{error.filename}: {os.strerror(error.errno)}; name another file")
    if isinstance(error, MemoryError):
        return MissingRequirement("out of memory; close other programs or ask for less")
    if isinstance(error, OSError) and error.errno in _LACKING:
        where = "" if error.filename is None else f"{error.filename}: "
        reason = os.strerror(error.errno)
        return MissingRequirement(f"{where}{reason}; free some, or raise the limit, and try again")
    if (package := _failed_package(error)) is not None:
        return InputError(
            f"{package}, a package with a variant of its own, failed: {first_line(error)}; --debug "
            "shows the traceback"
        )
    return InternalError(first_line(error))


def _failed_package(error: Exception) -> str | None:
    """The package with a variant in whose code, or below it, `error` arose; None if it was ours."""
    # Every command imports this module, and only a failure needs that one.
    from importlib.metadata import entry_points

    packages = {_first_word(entry.value) for entry in entry_points(group=VARIANTS_GROUP)}
    for frame, _ in reversed(list(walk_tb(error.__traceback__))):
        name = _first_word(frame.f_globals.get("__name__") or "")
        if name == "decodescope" or name in packages:
            return name if name in packages else None
    return None


def _first_word(dotted: str) -> str:
    return dotted.partition(":")[0].partition(".")[0]


def first_line(error: BaseException) -> str:
    """An unexpected error as one line: its type and the first line of its message."""
    try:
        text = str(error).strip()
    except Exception:  # an error of others may fail to say what it is
        text = ""
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def process_end(exit_code: int) -> str:
    """How a process ended, by `Popen.returncode`: a negative one is the signal that killed it."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
