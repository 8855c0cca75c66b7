"""The cache of read traces: damaged entries, and a command that meets them."""

import random
import tempfile
import time
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.readers.trace_cache import TraceCache
from decodescope.analyzer.readers.trace_entry import (
    EntryOrigin,
    NewEntry,
    described_origin,
    described_trace,
    open_entry,
    read_description,
)
from tests.fuzzing.case import CACHE_HOME, Case
from tests.fuzzing.damage import damage_bytes
from tests.fuzzing.planted import whole_case


def cache_case(rng: random.Random) -> Case:
    """A whole trace, whose figures must be the planted ones, or what shows or clears the cache."""
    case = whole_case(rng)
    ((name, data),) = case.files.items()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        cache = TraceCache(Path(folder), least_events=0, now_ns=lambda: time.time_ns() + 10**10)
        cache.trace_of(path, lambda: read_kineto_bytes(data, name))
        (kept,) = Path(folder).glob("*.columns")
        entry = of_no_file(kept)
    for _ in range(rng.choice((0, 1, 1, 2))):
        entry = damage_bytes(entry, rng)
    place = f"{CACHE_HOME}/decodescope/traces/{kept.name}"
    if rng.random() < 0.3:
        arguments = rng.choice((("cache",), ("cache", "--json"), ("cache", "clear")))
        case = Case(arguments, case.files)
    return replace(case, files={**case.files, place: entry}, outputs=(CACHE_HOME, place))


def of_no_file(kept: Path) -> bytes:
    """An entry as that of a file that is gone: its state would differ from run to run."""
    with open_entry(kept) as file:
        description = read_description(file)
        trace = described_trace(description, file)
    written, origin = BytesIO(), described_origin(description)
    NewEntry(EntryOrigin(origin.code, origin.content, (0,) * len(origin.state)), trace).write(
        written
    )
    return written.getvalue()
