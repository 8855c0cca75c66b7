"""Large traces that were read before: their columns, in files of the user's cache folder.

An entry is named after the size, the beginning and the end of a trace file. It holds a digest of
all bytes of that file, which are hashed again before the entry is used, and one of the analyzer's
own code. So a changed file is read again, a copy is not, and no other version uses the columns.

An entry is `_MAGIC`, the length and the SHA-256 of its description, the description (`_Entry` as
MessagePack), and the columns as NumPy holds them, each at a multiple of 64 bytes and with a SHA-256
in the description. What is damaged, of another user or of another version is removed. Whatever
fails, the trace is read from its file.
"""

import os
import shutil
import stat
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from msgspec import Struct

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.io.files import replacing_stream
from decodescope.analyzer.schema.cache_report import CachedTrace, CacheReport
from decodescope.analyzer.schema.report import Source
from decodescope.analyzer.trace import Trace

# A trace of so many events takes a second to read, and a twentieth of that to keep.
LEAST_EVENTS = 500_000
MOST_BYTES = 4_000_000_000
_SUFFIX = ".columns"
_MAGIC = b"decodescope columns\n"
_LENGTH_AND_DIGEST = struct.Struct("<Q32s")
_ALIGNED_BYTES = 64
_END_BYTES = 64 << 10
_PIECE_BYTES = 8 << 20
# File systems write down times in steps of up to two seconds, so that a later write may not show.
_SETTLED_NS = 2_000_000_000
# A log beside a database changes what is read from it.
_LOGS = ("-wal", "-journal")

# What reading an entry that is damaged, foreign or older can raise.
_UNUSABLE = (OSError, ValueError, msgspec.MsgspecError, RecursionError)

_Column = np.ndarray[Any, np.dtype[Any]]


class _Entry(Struct):
    """`code` is the digest of the analyzer that read the trace, `content` that of its file."""

    code: bytes
    content: bytes
    trace: Trace


class _Digests(Struct):
    code: bytes
    content: bytes


class _SourceOf(Struct):
    source: Source


class _Listed(Struct):
    trace: _SourceOf


class _StoredColumn(Struct, array_like=True):
    """A column whose first byte is `at` bytes behind the description."""

    dtype: str
    at: int
    rows: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class TraceCache:
    """The entries in `folder`. All of them together have at most `most_bytes`: those that were used
    last stay. Traces of fewer than `least_events` are not kept."""

    folder: Path = field(default_factory=lambda: cache_folder() / "traces")
    most_bytes: int = MOST_BYTES
    least_events: int = LEAST_EVENTS
    now_ns: Callable[[], int] = time.time_ns

    def trace_of(self, path: Path, read: Callable[[], Trace]) -> Trace:
        """The trace in the regular file `path`: from its entry, or else what `read` returns, for
        which an entry is then made."""
        began_ns = self.now_ns()
        try:
            before = os.stat(path)
            entry = self.folder / _entry_name(path, before)
            with_log = any(os.path.exists(f"{path}{suffix}") for suffix in _LOGS)
            kept = None if with_log else self._kept(entry, path)
        except OSError:
            return read()
        if kept is not None:
            return kept
        trace = read()
        settled = began_ns - before.st_ctime_ns > _SETTLED_NS
        if settled and not with_log and trace.source.events >= self.least_events:
            # Of these, only a full disk or a folder that cannot be written to is usual.
            with suppress(OSError, InputError, MemoryError, ValueError, OverflowError):
                self._keep(trace, entry, path, before)
        return trace

    def report(self) -> CacheReport:
        """What the cache holds, the trace that was used last first."""
        traces = []
        for path, status in self._entries():
            source = None
            with suppress(*_UNUSABLE), _opened(path) as file:
                source = msgspec.msgpack.decode(_description(file), type=_Listed).trace.source
            traces.append(
                CachedTrace(
                    path=None if source is None else source.path,
                    events=None if source is None else source.events,
                    size_bytes=status.st_size,
                    used_s=status.st_mtime,
                )
            )
        size_bytes = sum(trace.size_bytes for trace in traces)
        return CacheReport(str(self.folder), size_bytes, self.most_bytes, tuple(traces))

    def clear(self) -> None:
        """Remove all entries.

        Raises:
            InputError: one cannot be removed.
        """
        for path, _ in self._entries():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise InputError(f"{path}: cannot be removed ({error.strerror})") from error

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Each entry, the one that was used last first."""
        found = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(FileNotFoundError):
                found.append((path, path.lstat()))
        yield from sorted(found, key=lambda entry: entry[1].st_mtime_ns, reverse=True)

    def _kept(self, entry: Path, path: Path) -> Trace | None:
        try:
            with _opened(entry) as file:
                description = _description(file)
                digests = msgspec.msgpack.decode(description, type=_Digests)
                if digests.code == _code_digest():
                    if digests.content != _content_digest(path):
                        return None
                    trace = _read_trace(description, file)
                    os.utime(entry)
                    return replace(
                        trace, source=msgspec.structs.replace(trace.source, path=str(path))
                    )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except _UNUSABLE:
            pass
        with suppress(OSError):
            entry.unlink()
        return None

    def _keep(self, trace: Trace, entry: Path, path: Path, before: os.stat_result) -> None:
        """Make the entry, unless the file has changed since `before`, or too little of the disk
        would be left."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = _content_digest(path)
        if not _same(before, os.stat(path)):
            return
        columns = _Columns()
        description = msgspec.msgpack.encode(
            _Entry(_code_digest(), content, trace), enc_hook=columns.add
        )
        room_bytes = min(self.most_bytes, shutil.disk_usage(self.folder).free // 2)
        if len(description) + columns.end > room_bytes:
            return
        with replacing_stream(entry) as file:
            file.write(_MAGIC)
            file.write(_LENGTH_AND_DIGEST.pack(len(description), sha256(description).digest()))
            file.write(description)
            columns.write(file)
        self._make_room()

    def _make_room(self) -> None:
        total_bytes = 0
        for path, status in self._entries():
            total_bytes += status.st_size
            if total_bytes > self.most_bytes:
                path.unlink(missing_ok=True)


class _Columns:
    """The columns of a trace as they follow its description; `end` is their length in bytes."""

    def __init__(self) -> None:
        self.end = 0
        self._columns: list[tuple[int, memoryview]] = []

    def add(self, column: object) -> _StoredColumn:
        """Where a column is stored."""
        assert isinstance(column, np.ndarray)
        data = memoryview(np.ascontiguousarray(column).view(np.uint8))
        at = -(-self.end // _ALIGNED_BYTES) * _ALIGNED_BYTES
        self._columns.append((at, data))
        self.end = at + len(data)
        return _StoredColumn(column.dtype.str, at, len(column), sha256(data).digest())

    def write(self, file: BinaryIO) -> None:
        end = 0
        for at, data in self._columns:
            file.write(bytes(at - end))
            file.write(data)
            end = at + len(data)


def _opened(entry: Path) -> BinaryIO:
    """An entry to read.

    Raises:
        OSError: it is a link, or cannot be read.
        ValueError: it is no regular file of this user.
    """
    flags = os.O_NOFOLLOW | os.O_NONBLOCK
    file = open(entry, "rb", opener=lambda name, own: os.open(name, own | flags))  # noqa: SIM115
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        file.close()
        raise ValueError("no entry of this user")
    return file


def _description(file: BinaryIO) -> bytes:
    """The description of an entry; `ValueError` if it is not whole."""
    head = file.read(len(_MAGIC) + _LENGTH_AND_DIGEST.size)
    if len(head) < len(_MAGIC) + _LENGTH_AND_DIGEST.size or not head.startswith(_MAGIC):
        raise ValueError("no entry")
    length, digest = _LENGTH_AND_DIGEST.unpack_from(head, len(_MAGIC))
    if length > os.fstat(file.fileno()).st_size:
        raise ValueError("cut short")
    description = file.read(length)
    if sha256(description).digest() != digest:
        raise ValueError("damaged")
    return description


def _read_trace(description: bytes, file: BinaryIO) -> Trace:
    """The trace of an entry whose columns begin where `file` is; `ValueError` if one is damaged."""
    data = file.read()

    def column(kind: object, stored: object) -> _Column:
        it = msgspec.convert(stored, _StoredColumn)
        if not it.rows:
            return np.zeros(0, it.dtype)
        found = np.frombuffer(data, it.dtype, it.rows, it.at)
        if sha256(found).digest() != it.digest:
            raise ValueError("damaged")
        return found

    return msgspec.msgpack.decode(description, type=_Entry, dec_hook=column).trace


def _same(before: os.stat_result, after: os.stat_result) -> bool:
    """Whether nothing was written to a file, and no other one has its name."""
    return all(
        getattr(before, name) == getattr(after, name)
        for name in ("st_dev", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns")
    )


def _entry_name(path: Path, status: os.stat_result) -> str:
    with path.open("rb") as file:
        ends = sha256(file.read(_END_BYTES))
        file.seek(max(status.st_size - _END_BYTES, 0))
        ends.update(file.read(_END_BYTES))
    ends.update(b"%d" % status.st_size)
    return f"{ends.hexdigest()[:32]}{_SUFFIX}"


def _content_digest(path: Path) -> bytes:
    """SHA-256 of the SHA-256 of each 8 MiB of the file, which all cores compute."""
    # Only large traces need it.
    from concurrent.futures import ThreadPoolExecutor

    with path.open("rb") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
        pieces = range(0, os.fstat(file.fileno()).st_size, _PIECE_BYTES)
        digests = pool.map(partial(_piece_digest, file.fileno()), pieces)
        return sha256(b"".join(digests)).digest()


def _piece_digest(descriptor: int, at: int) -> bytes:
    return sha256(os.pread(descriptor, _PIECE_BYTES, at)).digest()


@cache
def _code_digest() -> bytes:
    """The digest of the analyzer's code and rules."""
    package = Path(__file__).resolve().parents[1]
    digest = sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".toml"):
            digest.update(path.read_bytes())
    return digest.digest()
