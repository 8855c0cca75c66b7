"""The cache of read traces: the same figures as from the file, and never those of another file."""

import dataclasses
import mmap
import os
import random
import resource
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.io.files import encode_json
from decodescope.analyzer.readers import reading, trace_cache, trace_entry
from decodescope.analyzer.readers.trace_cache import TraceCache
from decodescope.analyzer.readers.trace_entry import NewEntry
from decodescope.analyzer.trace import Columns, Trace
from tests.fuzzing.damage import damage_bytes
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.foreign.rocprof_files import Process
from tests.helpers.foreign.rocprof_files import document as rocprof_document
from tests.helpers.kineto_events import DATA, document, prelaunched, span

RECORDED = (
    "cpu_two_blocks",
    "h200_compiled_replays",
    "h200_compiled_ungraphed",
    "h200_graph_capture",
    "h200_graph_replays",
)
FOREIGN = ("mi300x_vllm_decode_graph.json.gz", "a100_eager.json.gz", "h100_2gpu_1s.sqlite")
KILLED = """
import os, sys
from pathlib import Path
from decodescope.analyzer import load
from decodescope.analyzer.readers.trace_cache import TraceCache
from decodescope.analyzer.readers.trace_entry import NewEntry
whole = NewEntry.write
def half(self, file):
    whole(self, file)
    file.truncate(self.size_bytes // 2)
    os.kill(os.getpid(), 9)
NewEntry.write = half
path, folder = map(Path, sys.argv[1:])
cache = TraceCache(folder, least_events=0, now_ns=lambda: 1 << 62)
cache.trace_of(path, lambda: load(path))
"""


def later_ns() -> int:
    """When every file of a test was written long ago."""
    return time.time_ns() + 10_000_000_000


@pytest.fixture
def cached(tmp_path: Path) -> TraceCache:
    return TraceCache(tmp_path / "kept", least_events=0, now_ns=later_ns)


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.json"
    path.write_bytes(document(prelaunched(steps=400)))
    return path


def unread() -> Trace:
    raise AssertionError("the file was read")


def entries(cache: TraceCache) -> list[Path]:
    return sorted(cache.folder.iterdir())


def assert_same(value: Any, other: Any) -> None:
    if isinstance(value, np.ndarray):
        assert value.dtype == other.dtype
        np.testing.assert_array_equal(value, other)
    elif isinstance(value, Columns | Trace):
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            assert_same(getattr(value, field.name), getattr(other, field.name))
    else:
        assert type(value) is type(other)
        assert value == other


def assert_kept_as_read(path: Path, cache: TraceCache) -> None:
    read = cache.trace_of(path, lambda: load(path))
    kept = cache.trace_of(path, unread)
    assert_same(kept, read)
    assert encode_json(analyze(kept).report) == encode_json(analyze(load(path)).report)


@pytest.mark.parametrize("name", RECORDED)
def test_figures_from_the_cache_are_those_of_the_file(name: str, cached: TraceCache) -> None:
    assert_kept_as_read(DATA / f"{name}.json.gz", cached)


@pytest.mark.parametrize("name", FOREIGN)
def test_so_are_those_of_other_writers(name: str, cached: TraceCache, foreign_traces: Path) -> None:
    assert_kept_as_read(foreign_traces / name, cached)


def test_so_are_those_of_other_formats(tmp_path: Path, cached: TraceCache) -> None:
    export, process = Export(), Process()
    for number in range(1, 9):
        export.call(60 * number, 60 * number + 5, number)
        export.kernel(60 * number + 8, 60 * number + 18, number, name=f"kernel<{number % 3}>")
        process.call(60 * number, 60 * number + 5, number)
        process.kernel(60 * number + 8, 60 * number + 18, number)
    assert_kept_as_read(export.write(tmp_path / "report.sqlite"), cached)
    results = tmp_path / "results.json"
    results.write_bytes(rocprof_document(process))
    assert_kept_as_read(results, cached)
    assert len(entries(cached)) == 2


def test_load_keeps_large_traces_only_and_those_of_no_pipe(
    trace_file: Path, cached: TraceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_cache, "TraceCache", lambda: cached)
    read = load(trace_file)
    assert not cached.folder.exists()
    monkeypatch.setattr(reading, "_LARGE_BYTES", 1000)
    os.mkfifo(fifo := trace_file.with_name("fifo"))
    with subprocess.Popen(["cp", trace_file, fifo]):
        load(fifo)
    assert not cached.folder.exists()
    load(trace_file)
    assert len(entries(cached)) == 1
    monkeypatch.setattr(reading, "FORMATS", [(*row[:2], unread) for row in reading.FORMATS])
    assert_same(load(trace_file), read)


def test_a_changed_file_of_the_same_size_and_time_is_read_again(
    trace_file: Path, cached: TraceCache
) -> None:
    cached.trace_of(trace_file, lambda: load(trace_file))
    before, data = trace_file.stat(), bytearray(trace_file.read_bytes())
    place = data.index(b'"norm"', len(data) // 2)
    with trace_file.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[place : place + 6] = b'"NORM"'
    os.utime(trace_file, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = trace_file.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert "NORM" in cached.trace_of(trace_file, lambda: load(trace_file)).names
    assert "NORM" in cached.trace_of(trace_file, unread).names
    assert len(entries(cached)) == 1


def test_a_copy_is_not_read_again_and_has_its_own_name(
    trace_file: Path, cached: TraceCache
) -> None:
    cached.trace_of(trace_file, lambda: load(trace_file))
    copy = trace_file.with_name("copy.json")
    copy.write_bytes(trace_file.read_bytes())
    assert cached.trace_of(copy, unread).source.path == str(copy)


@pytest.mark.parametrize("how", ["small", "new", "log", "changed", "replaced", "full", "bound"])
def test_what_is_not_kept(
    how: str, trace_file: Path, cached: TraceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> Trace:
        trace = load(trace_file)
        if how == "changed":
            with trace_file.open("ab") as file:
                file.write(b" ")
        if how == "replaced":
            other = trace_file.with_name("other")
            other.write_bytes(trace_file.read_bytes())
            other.replace(trace_file)
        return trace

    changes: dict[str, dict[str, Any]] = {
        "small": {"least_events": 10**6},
        "new": {"now_ns": time.time_ns},
        "bound": {"most_bytes": 1000},
    }
    if how == "log":
        trace_file.with_name("trace.json-wal").touch()
    if how == "full":
        usage = trace_cache.shutil.disk_usage(trace_file.parent)._replace(free=20_000)
        monkeypatch.setattr(trace_cache.shutil, "disk_usage", lambda folder: usage)
    cache = dataclasses.replace(cached, **changes.get(how, {}))
    assert len(cache.trace_of(trace_file, read).ops) == 1600
    assert not cache.folder.exists() or entries(cache) == []


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[TraceCache, Path, Path]:
    """A cache, a trace, and its entry."""
    folder = tmp_path_factory.mktemp("small")
    path = folder / "trace.json"
    path.write_bytes(document(prelaunched()))
    cache = TraceCache(folder / "kept", least_events=0, now_ns=later_ns)
    cache.trace_of(path, lambda: load(path))
    (entry,) = entries(cache)
    return cache, path, entry


@given(seed=st.integers(0, 2**32))
def test_a_damaged_entry_is_never_used(small: tuple[TraceCache, Path, Path], seed: int) -> None:
    cache, path, entry = small
    truth = load(path)
    entry.write_bytes(damage_bytes(entry.read_bytes(), random.Random(seed)))
    assert_same(cache.trace_of(path, lambda: load(path)), truth)
    assert_same(cache.trace_of(path, unread), truth)


@pytest.mark.parametrize(
    "what", ["link", "fifo", "folder", "of another user", "of another version"]
)
def test_what_is_no_entry_of_this_user_and_version_is_left_alone(
    what: str, trace_file: Path, cached: TraceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = cached.trace_of(trace_file, lambda: load(trace_file))
    (entry,) = entries(cached)
    other = trace_file.with_name("other")
    if what == "link":
        entry.rename(other)
        entry.symlink_to(other)
    elif what in ("fifo", "folder"):
        entry.unlink()
        os.mkfifo(entry) if what == "fifo" else entry.mkdir()
    elif what == "another user's":
        monkeypatch.setattr(trace_entry.os, "geteuid", lambda: 4711)
    else:
        monkeypatch.setattr(trace_cache, "_code_digest", lambda: b"another")
    before = other.read_bytes() if other.exists() else b""
    with pytest.raises(ZeroDivisionError):
        cached.trace_of(trace_file, lambda: 1 // 0)  # type: ignore[arg-type]
    assert_same(cached.trace_of(trace_file, lambda: load(trace_file)), read)
    assert (other.read_bytes() if other.exists() else b"") == before
    if what in ("link", "fifo", "older"):
        assert_same(cached.trace_of(trace_file, unread), read)
        assert entry.is_file()
        assert not entry.is_symlink()


def test_two_writers_leave_one_whole_entry(
    trace_file: Path, cached: TraceCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, begun = NewEntry.write, list[NewEntry]()

    def write(self: NewEntry, file: BinaryIO) -> None:
        begun.append(self)
        if len(begun) == 1:
            file.write(b"half of")
            file.flush()
            cached.trace_of(trace_file, lambda: load(trace_file))
            file.seek(0)
        whole(self, file)

    monkeypatch.setattr(NewEntry, "write", write)
    cached.trace_of(trace_file, lambda: load(trace_file))
    assert len(begun) == 2
    assert_same(cached.trace_of(trace_file, unread), load(trace_file))
    assert len(entries(cached)) == 1


def test_a_full_disk_loses_nothing(trace_file: Path, cached: TraceCache) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        trace = cached.trace_of(trace_file, lambda: load(trace_file))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert_same(trace, load(trace_file))
    assert entries(cached) == []


def test_a_killed_writer_leaves_no_entry_and_the_next_one_removes_its_part(
    trace_file: Path, cached: TraceCache
) -> None:
    command = [sys.executable, "-c", KILLED, str(trace_file), str(cached.folder)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (part,) = entries(cached)
    assert part.suffix == ".part"
    cached.trace_of(trace_file, lambda: load(trace_file))
    assert_same(cached.trace_of(trace_file, unread), load(trace_file))
    assert part not in entries(cached)
    assert len(entries(cached)) == 1


def test_a_home_that_cannot_be_written_to_changes_nothing(trace_file: Path) -> None:
    cache = TraceCache(Path(os.devnull, "traces"), least_events=0, now_ns=later_ns)
    for _ in range(2):
        assert_same(cache.trace_of(trace_file, lambda: load(trace_file)), load(trace_file))
    assert cache.report().traces == ()


def test_those_used_last_stay_within_the_bound(trace_file: Path, cached: TraceCache) -> None:
    paths = [trace_file.with_name(f"{number}.json") for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(document([*prelaunched(steps=100), span(0, 9, f"{number}")]))
    for age, path in zip((300, 200, 100), paths, strict=False):
        cached.trace_of(path, partial(load, path))
        (new,) = (entry for entry in entries(cached) if entry.stat().st_mtime > time.time() - 50)
        os.utime(new, (0, time.time() - age))
    size_bytes = max(entry.stat().st_size for entry in entries(cached))
    cached.trace_of(paths[0], unread)
    os.utime(max(entries(cached), key=lambda entry: entry.stat().st_mtime), (0, time.time() - 50))
    bounded = dataclasses.replace(cached, most_bytes=3 * size_bytes + 100)
    bounded.trace_of(paths[3], partial(load, paths[3]))
    report = bounded.report()
    assert [trace.path for trace in report.traces] == [str(paths[n]) for n in (3, 0, 2)]
    assert {trace.events for trace in report.traces} == {601}
    assert report.size_bytes == sum(path.stat().st_size for path in entries(cached))
    bounded.clear()
    assert bounded.report().traces == ()
