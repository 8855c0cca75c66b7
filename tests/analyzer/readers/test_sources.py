"""The same trace is read from a file, a pipe and gzip, whatever its name."""

import gzip
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np
import pytest

from decodescope.analyzer import load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers import byte_source
from decodescope.analyzer.readers.byte_source import ByteSource, open_source
from decodescope.analyzer.readers.sqlite_file import open_sqlite
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.trace import Trace
from tests.helpers.foreign import rocpd_files, rocprof_files
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.kineto_events import DATA, RECORDED, call, document, op

pytestmark = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="names pipes by /dev/fd")


def nsys_export(path: Path) -> bytes:
    export = Export()
    for at in range(0, 4000, 100):
        export.call(at, at + 5, at + 1)
        export.kernel(at + 10, at + 60, at + 1)
    return export.write(path).read_bytes()


@pytest.fixture(params=["kineto", "nsys-sqlite", "rocprof-json", "rocpd", "recording"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """A file of each format."""
    if request.param == "kineto":
        return RECORDED
    if request.param == "recording":
        return bundled_recordings()[0].read_bytes()
    if request.param.startswith("roc"):
        process = rocprof_files.Process()
        process.call(10, 20, 1)
        process.kernel(30, 40, 1)
        if request.param == "rocpd":
            return rocpd_files.write(tmp_path / "made.db", process).read_bytes()
        return rocprof_files.document(process)
    return nsys_export(tmp_path / "made.sqlite")


@contextmanager
def pipe(data: bytes) -> Iterator[str]:
    """A path that gives `data` once."""
    reading, writing = os.pipe()

    def write() -> None:
        # A reader may refuse what it has read so far.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as stream:
            stream.write(data)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        writer.join()


def same(one: Trace, other: Trace) -> bool:
    shown = msgspec.structs.replace(other.source, path=one.source.path)
    return (one.source, one.names, one.findings) == (shown, other.names, other.findings) and all(
        np.array_equal(getattr(events, column.name), getattr(twin, column.name))
        for events, twin in ((one.ops, other.ops), (one.calls, other.calls))
        for column in fields(events)
    )


@pytest.mark.parametrize("packed", [False, True])
def test_every_format_is_read_from_a_pipe_as_from_a_file(
    whole: bytes, packed: bool, tmp_path: Path
) -> None:
    file = tmp_path / "trace"
    file.write_bytes(whole)
    with pipe(gzip.compress(whole, 1) if packed else whole) as path:
        piped = load(path)
        assert piped.source.path == path
    assert len(piped.ops) > 0
    assert same(load(file), piped)


def test_gzip_is_recognised_by_content(whole: bytes, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.json.gz", tmp_path / "packed.txt"
    plain.write_bytes(whole)
    packed.write_bytes(gzip.compress(whole, 1))
    assert same(load(plain), load(packed))


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are Unicode")
def test_a_name_that_is_no_text_is_read(whole: bytes, tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"a\xff %20?#.db")
    odd.write_bytes(whole)
    plain = tmp_path / "plain"
    plain.write_bytes(whole)
    assert same(load(plain), load(odd))


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    marked = tmp_path / "marked.json"
    for data in (b"\xef\xbb\xbf" + RECORDED, gzip.compress(b"\xef\xbb\xbf" + RECORDED, 1)):
        marked.write_bytes(data)
        assert same(load(DATA / "cpu_two_blocks.json.gz"), load(marked))


def test_a_database_in_write_ahead_mode_is_read_from_a_pipe(tmp_path: Path) -> None:
    path = tmp_path / "made.sqlite"
    nsys_export(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    connection.close()
    with pipe(path.read_bytes()) as piped:
        assert same(load(path), load(piped))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda data: b"", "gave no bytes"),
        (lambda data: gzip.compress(b""), "an empty file|gave no bytes"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:50], "cut short"),
        (lambda data: data[:16] + b"\xff" * (len(data) - 16), "cut short|damaged"),
        (lambda data: gzip.compress(data)[:500], "cut short|broken|damaged"),
    ],
)
def test_a_broken_database_in_a_pipe_is_one_line(
    damage: Callable[[bytes], bytes], says: str, tmp_path: Path
) -> None:
    with pipe(damage(nsys_export(tmp_path / "made.sqlite"))) as path:
        with pytest.raises(TraceError, match=says) as raised:
            load(path)
        assert str(raised.value).startswith(f"{path}: ")


def test_what_must_be_held_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byte_source, "MAX_BYTES_IN_MEMORY", 1 << 12)
    recording = bundled_recordings()[0].read_bytes()
    assert len(recording) > 1 << 12
    with pipe(recording) as path, pytest.raises(TraceError, match="save it to a file"):
        load(path)


def test_the_copy_of_a_database_has_no_name_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    data = nsys_export(tmp_path / "made.sqlite")
    with pipe(data) as path, open_source(path) as source, open_sqlite(source) as database:
        assert os.listdir(temporary) == []
        assert database.count("CUPTI_ACTIVITY_KIND_KERNEL") == 40
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pipe(data) as path, pytest.raises(TraceError, match="space for temporary files"):
        load(path)


def test_a_pipe_without_an_end_is_refused() -> None:
    class Endless(BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            return b" " * (size or 0)

    source = ByteSource(Endless(), "endless", max_bytes=8 << 20)
    with pytest.raises(TraceError, match="endless: gives more than"):
        all(iter(source.read, b""))


def test_a_read_error_is_one_line() -> None:
    class Failing(BytesIO):
        def read1(self, size: int | None = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(TraceError, match=r"^disk: reading failed \(Input/output error\)"):
        ByteSource(Failing(), "disk")


def test_the_head_is_read_again(tmp_path: Path) -> None:
    for size in (0, 1, 2, 3, 4095, 4096, 4097, (1 << 20) + 5):
        data = bytes(range(256)) * (size // 256 + 1)
        path = tmp_path / "data"
        path.write_bytes(data[:size])
        for stored in (data[:size], gzip.compress(data[:size], 1)):
            path.write_bytes(stored)
            with open_source(str(path)) as source:
                assert source.head == data[: min(size, 4096)]
                assert bytes(source.read_all("")) == data[:size]


def test_a_device_without_bytes_is_one_line() -> None:
    with pytest.raises(TraceError, match=r"^/dev/null: gave no bytes"):
        load("/dev/null")


def test_events_on_one_line_after_a_mark_keep_their_times(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"\xef\xbb\xbf" + document([call(1, 3, 5), op(10, 60, 5)]))
    assert load(path).ops.start_ns.tolist() == [10]
