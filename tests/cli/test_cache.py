"""`cache` as a user types it, and the commands that read from it."""

import time
from functools import partial
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.readers import reading, trace_cache
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.readers.trace_cache import TraceCache
from decodescope.analyzer.schema.cache_report import CacheReport
from decodescope.analyzer.trace import Trace
from tests.cli.test_diff import trace_file
from tests.helpers.command import Command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that keeps every trace."""
    kept = tmp_path / "kept"
    every = partial(TraceCache, kept, least_events=0, now_ns=lambda: time.time_ns() + 10**10)
    monkeypatch.setattr(trace_cache, "TraceCache", every)
    monkeypatch.setattr(reading, "_LARGE_BYTES", 0)
    return kept


def unread(source: ByteSource) -> Trace:
    raise AssertionError("the file was read")


def test_what_is_kept_is_listed_used_and_cleared(
    decodescope: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = decodescope("cache")
    assert empty.out == f"0 traces, 0 B of at most 4.00 GB\n{folder}\n"
    trace_file(path := tmp_path / "\x1b[31mt.json", 200, 203, 199)
    read = decodescope("analyze", str(path), "--json")
    monkeypatch.setattr(reading, "FORMATS", [(*row[:2], unread) for row in reading.FORMATS])
    assert decodescope("analyze", str(path), "--json") == read
    listed = decodescope("cache")
    assert listed.out.startswith("1 trace, ")
    assert "\\x1b[31mt.json" in listed.out
    report = msgspec.json.decode(decodescope("cache", "--json").out, type=CacheReport)
    assert [trace.path for trace in report.traces] == [str(path)]
    assert report.size_bytes == sum(entry.stat().st_size for entry in folder.iterdir())
    next(folder.iterdir()).write_bytes(b"damaged")
    assert "7 B" in decodescope("cache").out
    assert decodescope("cache", "clear").err == f"cleared {folder}\n"
    assert list(folder.iterdir()) == []
    assert decodescope("cache") == empty
    assert decodescope("cache", "empty").code == 2
