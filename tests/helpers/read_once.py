"""Traces that do not change, read and analysed once for tests that only look at them."""

from functools import lru_cache
from pathlib import Path

from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.trace import Trace

# Some have 100,000 ops.
_MOST = 8
Name = Path | str


@lru_cache(_MOST)
def loaded_once(path: Name) -> Trace:
    return load(path)


@lru_cache(_MOST)
def analysed_once(path: Name) -> Analysis:
    return analyze(loaded_once(path))
