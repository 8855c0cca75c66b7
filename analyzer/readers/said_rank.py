"""Whether files are the ranks of one run, by what Kineto writes before the events."""

import re
from collections.abc import Sequence
from pathlib import Path

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import open_source

# The properties of the devices come before it.
_LOOKED_AT_BYTES = 256 << 10
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\b')


def are_ranks(paths: Sequence[Path]) -> bool:
    """Whether each of several files names a rank that no other one names. Only their beginnings
    are read; what cannot be read names none."""
    named = [_said_rank(path) for path in paths]
    return len(paths) > 1 and None not in named and len(set(named)) == len(named)


def _said_rank(path: Path) -> int | None:
    if not path.is_file():
        return None
    beginning = b""
    try:
        with open_source(str(path)) as source:
            while len(beginning) < _LOOKED_AT_BYTES and (piece := source.read()):
                beginning += piece
    except TraceError:
        return None
    found = _RANK.search(beginning[:_LOOKED_AT_BYTES])
    return None if found is None else int(found[1])
