"""Large traces that were read before: their columns, in files of the user's cache folder.

An entry is used for a file whose inode, size and times are those of the file whose columns were
kept, or else whose bytes are, by SHA-256: a changed file is read again, a copy is not. It holds
a digest of the analyzer's own code too, so no other version uses it. Entries that are damaged, of
another user or of another version are removed. Whatever fails, the trace is read from its file.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.io.files import replacing_stream
from decodescope.analyzer.readers.trace_entry import (
    UNUSABLE,
    EntryOrigin,
    NewEntry,
    described_origin,
    described_source,
    described_trace,
    open_entry,
    read_description,
)
from decodescope.analyzer.schema.cache_report import CachedTrace, CacheReport
from decodescope.analyzer.trace import Trace

# A trace of so many events takes a second to read, and a tenth of that to keep.
LEAST_EVENTS = 500_000
MOST_BYTES = 4_000_000_000
_SUFFIX = ".columns"
_END_BYTES = 64 << 10
_PIECE_BYTES, _MOST_THREADS = 4 << 20, 8
# File systems write down times in steps of up to two seconds, so that a later write may not show.
_SETTLED_NS = 2_000_000_000
# A log beside a database changes what is read from it.
_LOGS = ("-wal", "-journal")


class _State(NamedTuple):
    """A file as its file system has it. No program can set `changed_ns` (ctime) to another time
    than now, so a file that was written to is in another state."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


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
        which an entry is then made; `read` opens the file."""
        if any(os.path.exists(f"{path}{suffix}") for suffix in _LOGS):
            return read()
        began_ns = self.now_ns()
        try:
            state = _state(path)
            entry = self.folder / _entry_name(path)
            kept = self._kept(entry, path, state)
        except (OSError, MemoryError):
            return read()
        if kept is not None:
            return kept
        trace = read()
        is_settled = began_ns - state.changed_ns > _SETTLED_NS
        if is_settled and trace.source.events >= self.least_events:
            # Of these, only a full disk or a folder that cannot be written to is usual.
            with suppress(OSError, InputError, MemoryError, ValueError, OverflowError):
                self._keep(trace, entry, path, state)
        return trace

    def report(self) -> CacheReport:
        """The contents of the cache."""
        traces = []
        for path, status in self._entries():
            source = None
            with suppress(*UNUSABLE), open_entry(path) as file:
                source = described_source(read_description(file))
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

    def _kept(self, entry: Path, path: Path, state: _State) -> Trace | None:
        """The trace of an entry, if it is of this file. One that is of no use is removed."""
        try:
            with open_entry(entry) as file:
                description = read_description(file)
                origin = described_origin(description)
                if origin.code != _code_digest():
                    raise ValueError("of another version")
                if origin.state != state and origin.content != _content_digest(path):
                    return None
                trace = described_trace(description, file)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except UNUSABLE:
            with suppress(OSError):
                entry.unlink()
            return None
        with suppress(OSError):
            os.utime(entry)
        return replace(trace, source=msgspec.structs.replace(trace.source, path=str(path)))

    def _keep(self, trace: Trace, entry: Path, path: Path, state: _State) -> None:
        """Make the entry, unless the file is no longer in `state`, or over half of what is free on
        the disk would be taken."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = _content_digest(path)
        if _state(path) != state:
            return
        new = NewEntry(EntryOrigin(_code_digest(), content, state), trace)
        if new.size_bytes > min(self.most_bytes, shutil.disk_usage(self.folder).free // 2):
            return
        with replacing_stream(entry) as file:
            new.write(file)
        total_bytes = 0
        for other, status in self._entries():
            total_bytes += status.st_size
            if total_bytes > self.most_bytes:
                other.unlink(missing_ok=True)


def _state(path: Path) -> _State:
    status = os.stat(path)
    times_ns = (status.st_mtime_ns, status.st_ctime_ns)
    return _State(status.st_dev, status.st_ino, status.st_size, *times_ns)


def _entry_name(path: Path) -> str:
    """The name of the entry of a file: by its size, its beginning and its end."""
    with path.open("rb") as file:
        size_bytes = os.fstat(file.fileno()).st_size
        ends = sha256(b"%d" % size_bytes + file.read(_END_BYTES))
        file.seek(max(size_bytes - _END_BYTES, 0))
        ends.update(file.read(_END_BYTES))
    return f"{ends.hexdigest()[:32]}{_SUFFIX}"


def _content_digest(path: Path) -> bytes:
    """SHA-256 of the SHA-256 of each 4 MiB of the file, which several cores compute."""
    # Only a file that is kept needs it.
    from concurrent.futures import ThreadPoolExecutor

    with path.open("rb") as file, ThreadPoolExecutor(_MOST_THREADS) as pool:
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
