"""While a trace is read, less than half as much again is held as what is returned: few and many
names, ops with and without calls, of every format."""

import gzip
import random
import sqlite3
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from decodescope.analyzer import load
from decodescope.analyzer.readers import byte_source, trace_columns
from decodescope.analyzer.readers.nsys import database, events
from decodescope.analyzer.readers.rocprof import process_columns, rocpd
from decodescope.analyzer.trace import Columns, Trace
from tests.helpers.foreign import rocpd_files, rocprof_files
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.kineto_events import call, document, op

ROWS = 4_000
# The allocator keeps some more, in holes that it cannot give back.
MOST = 1.45


def name_of(row: int, distinct: int) -> str:
    return f"void cutlass::Kernel2<sm90_gemm_{row % distinct:07d}>"


def kineto(folder: Path, distinct: int, calls: bool) -> Path:
    rows = []
    for at in range(ROWS):
        rows.append(op(10 * at, 10 * at + 5, at + 1, name=name_of(at, distinct)))
        if calls:
            rows.append(call(10 * at - 8, 10 * at - 7, at + 1))
    path = folder / "trace.json"
    path.write_bytes(document(rows))
    return path


def nsys(folder: Path, distinct: int, calls: bool) -> Path:
    export = Export()
    for at in range(ROWS):
        export.kernel(10 * at, 10 * at + 5, at + 1, name=name_of(at, distinct))
        if calls:
            export.call(10 * at - 8, 10 * at - 7, at + 1)
    return export.write(folder / "trace.sqlite")


def nvtx(folder: Path, distinct: int, calls: bool) -> Path:
    export = Export()
    for at in range(ROWS):
        export.span(10 * at, 10 * at + 5, name_of(at, distinct))
    return export.write(folder / "trace.sqlite")


def rocprof(folder: Path, distinct: int, calls: bool) -> Path:
    process = rocprof_files.Process()
    for at in range(ROWS):
        process.kernel(10 * at + 10, 10 * at + 15, at + 1, kernel=at % distinct)
        if calls:
            process.call(10 * at + 2, 10 * at + 3, at + 1)
    names = {at: name_of(at, distinct) for at in range(distinct)}
    return rocprof_files.write(folder / "results.json", process, kernels=names)


def rocpd_database(folder: Path, distinct: int, calls: bool) -> Path:
    process = rocprof_files.Process()
    for at in range(ROWS):
        process.kernel(10 * at + 10, 10 * at + 15, at + 1, kernel=at % distinct + 1)
        if calls:
            process.call(10 * at + 2, 10 * at + 3, at + 1)
    names = {at + 1: name_of(at, distinct) for at in range(distinct)}
    return rocpd_files.write(folder / "results.db", process, kernels=names)


def held_bytes(trace: Trace) -> int:
    """Of its columns, and of its names as Python holds them."""
    values = [getattr(trace, field.name) for field in fields(trace)]
    columns = [
        getattr(value, field.name)
        for value in values
        if isinstance(value, Columns)
        for field in fields(value)  # type: ignore[arg-type]
    ]
    names = sum(name.__sizeof__() for name in trace.names) + trace.names.__sizeof__()
    return sum(column.nbytes for column in columns) + names


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces that a small file has many of; and memory that is traced, without the pages that would
    not be written."""
    monkeypatch.setattr(byte_source, "_PIECE_BYTES", 1 << 13)
    for reader, rows in ((database, 100), (rocpd, 10)):
        monkeypatch.setattr(reader, "_CHUNK_ROWS", rows)
        monkeypatch.setattr(reader, "TEXT_ROWS", rows)
    for module, name in (
        (trace_columns, "_JOINED_ROWS"),
        (events, "_NAMED_ROWS"),
        (process_columns, "_BLOCK_ROWS"),
    ):
        monkeypatch.setattr(module, name, 1 << 9)
    monkeypatch.setattr(
        trace_columns, "_in_pages", lambda rows, dtype: np.empty(min(rows, ROWS), dtype)
    )


def held_once(path: Path) -> Trace:
    """The trace of a file, read with less than half as much again as it holds."""
    load(path)
    tracemalloc.start()
    try:
        trace = load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.ops) + len(trace.ranges) == ROWS
    assert peak < MOST * held_bytes(trace)
    return trace


@pytest.mark.parametrize(
    ("write", "distinct", "calls"),
    [
        (kineto, 50, False),
        (kineto, 50, True),
        (kineto, ROWS, False),
        (nsys, 50, False),
        (nsys, 50, True),
        (nsys, ROWS, False),
        (nvtx, ROWS, False),
        (rocprof, 50, False),
        (rocprof, 50, True),
        (rocprof, ROWS, False),
        (rocpd_database, 50, False),
        (rocpd_database, 50, True),
        (rocpd_database, ROWS, False),
    ],
)
@pytest.mark.usefixtures("small_pieces")
def test_a_trace_is_held_once(
    write: Callable[[Path, int, bool], Path], distinct: int, calls: bool, tmp_path: Path
) -> None:
    trace = held_once(write(tmp_path, distinct, calls))
    assert len(trace.names) >= distinct


@pytest.mark.parametrize("write", [nsys, rocpd_database])
@pytest.mark.usefixtures("small_pieces")
def test_of_a_packed_database_only_the_trace_is_held(
    write: Callable[[Path, int, bool], Path], tmp_path: Path
) -> None:
    path = write(tmp_path, 50, False)
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE samples (stack BLOB)")
        file.executemany("INSERT INTO samples VALUES (?)", [(random.randbytes(9_000),)] * 500)
        file.commit()
    packed = tmp_path / f"{path.name}.gz"
    packed.write_bytes(gzip.compress(path.read_bytes(), 1, mtime=0))
    held_once(packed)
