"""decodescope: where one LLM decode step loses its time, and did your change win it back?

`decodescope.open(path)` reads a trace and computes its figures; docs/api.md has examples.
"""

from typing import TYPE_CHECKING

from decodescope.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from decodescope.analyzer.opened import OpenedTrace
    from decodescope.analyzer.reports.user_facts import Given

# `from decodescope import *` leaves the built-in `open` as it is.
__all__ = ["__version__"]


def open(path: "Path | str", facts: "Given | None" = None) -> "OpenedTrace":
    """Read a trace of any format, or a recording, and compute its figures.

    `path` is a file, a pipe, or "-" for the standard input; `facts` are those beside the trace.

    Raises:
        TraceError: the file is not a trace.
        InputError: one of the `facts` is not what it should be.
    """
    from decodescope.analyzer import Given, analyze, load
    from decodescope.analyzer.opened import OpenedTrace

    return OpenedTrace(analyze(load(path), facts or Given()))
