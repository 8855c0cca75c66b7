"""Traces in which every event has a name of its own: each is held once, and so are the columns."""

import tracemalloc
from dataclasses import fields
from pathlib import Path

import pytest

from decodescope.analyzer import load
from decodescope.analyzer.readers import byte_source
from decodescope.analyzer.readers.nsys import database
from decodescope.analyzer.trace import Columns, Trace
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.kineto_events import document, op

KERNELS = 20_000
# A dictionary and its numbers are held beside the names until all are read; of SQLite also columns
# that only the reader needs.
MOST = {"json": 1.44, "sqlite": 1.6}


def written(suffix: str, folder: Path) -> Path:
    path = folder / f"trace.{suffix}"
    names = [f"void cutlass::Kernel2<sm90_gemm_{number:07d}>" for number in range(KERNELS)]
    if suffix == "json":
        events = [op(10 * at, 10 * at + 5, at + 1, name=name) for at, name in enumerate(names)]
        path.write_bytes(document(events))
        return path
    export = Export()
    for at, name in enumerate(names):
        export.kernel(10 * at, 10 * at + 5, at + 1, name=name)
    return export.write(path)


def held_bytes(trace: Trace) -> int:
    """Of its columns, and of its names as Python holds them."""
    values = [getattr(trace, field.name) for field in fields(trace)]
    columns = [
        getattr(value, field.name) for value in values if isinstance(value, Columns)
        for field in fields(value)  # type: ignore[arg-type]
    ]  # fmt: skip
    names = sum(name.__sizeof__() for name in trace.names) + trace.names.__sizeof__()
    return sum(column.nbytes for column in columns) + names


@pytest.mark.parametrize("suffix", MOST)
def test_each_name_is_held_once(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(byte_source, "_PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(database, "_CHUNK_ROWS", 200)
    path = written(suffix, tmp_path)
    load(path)
    tracemalloc.start()
    try:
        trace = load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.names) == len(trace.ops) == KERNELS
    assert peak < MOST[suffix] * held_bytes(trace)
