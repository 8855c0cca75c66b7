"""Counts the files of decodescope that one command runs through.

    python -m tools.ways analyze TRACE
    python -m tools.ways open --once RECORDING
    python -m tools.ways run --model tiny --device cpu --variant eager

The command runs in this process. A file counts if one of its functions is called. An edge leads
from a file to another one that it calls, also through functions of libraries. Nothing that an
import runs counts: bodies of modules and classes, and what they call. The last line of
stdout is JSON: the number of files, of edges, of pairs of files that call each other both ways, and
of folders. The pairs and the files are listed on stderr.
"""

import importlib
import json
import os
import sys
import threading
from collections import Counter
from functools import cache
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType
from typing import Any

import decodescope
from decodescope.cli.main import main

PACKAGE = Path(decodescope.__file__).parent
# A command that decodes imports them. Their own calls, which do not count, take seconds to watch.
_LIBRARIES = ("torch", "transformers.models.llama.modeling_llama")
# Their frames belong to the function that holds them.
_NOT_CALLS = frozenset(("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>"))

calls_by_file: Counter[str] = Counter()
edges: Counter[tuple[str, str]] = Counter()


@cache
def package_file(filename: str) -> str | None:
    """The path of a file of decodescope relative to the package, None for any other file."""
    path = os.path.realpath(filename)
    for room in (link for link in PACKAGE.iterdir() if link.is_dir()):
        below = f"{room.resolve()}{os.sep}"
        if path.startswith(below):
            return f"{room.name}/{path.removeprefix(below)}"
    return None


def count_call(frame: FrameType, event: str, argument: Any) -> None:
    """A profile function (`sys.setprofile`) that counts calls into the package's files."""
    if event != "call" or frame.f_code.co_name in _NOT_CALLS or _is_body(frame):
        return
    callee = package_file(frame.f_code.co_filename)
    if callee is None:
        return
    caller_frame = frame.f_back
    while caller_frame is not None:
        caller = package_file(caller_frame.f_code.co_filename)
        if caller is not None:
            if _is_body(caller_frame):
                return
            if caller != callee:
                edges[caller, callee] += 1
            break
        caller_frame = caller_frame.f_back
    calls_by_file[callee] += 1


def _is_body(frame: FrameType) -> bool:
    """Whether a frame runs the body of a module or a class."""
    return not frame.f_code.co_flags & CO_OPTIMIZED


def report() -> None:
    """Write the files and the pairs to stderr, the figures as JSON to stdout."""
    pairs = sorted({tuple(sorted(edge)) for edge in edges if edge[::-1] in edges})
    for file, calls in calls_by_file.most_common():
        sys.stderr.write(f"{calls:>9} {file}\n")
    for first, second in pairs:
        sys.stderr.write(f"both ways: {first} {second}\n")
    figures = {
        "files": len(calls_by_file),
        "edges": len(edges),
        "both_ways": len(pairs),
        "folders": len({file.rpartition("/")[0] for file in calls_by_file}),
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")


if __name__ == "__main__":
    sys.argv = ["decodescope", *sys.argv[1:]]
    if sys.argv[1:2] == ["run"]:
        for library in _LIBRARIES:
            importlib.import_module(library)
    threading.setprofile(count_call)
    sys.setprofile(count_call)
    try:
        main()
    except SystemExit:
        pass
    finally:
        sys.setprofile(None)
        report()
