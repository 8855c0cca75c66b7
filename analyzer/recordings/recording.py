"""Recordings: the worker's messages of a live session, with times and the captured windows.

A `.dsrec` file is the magic, one version byte, and frames: a big-endian uint32 length and that many
bytes of msgpack. A frame is a message or a captured window (its `TraceReady` and its gzipped
Kineto JSON), each with its time in ns since the recording began. Frames are only appended, so the
complete frames of a killed run stay readable under the name that ends in `.partial`.
"""

import gzip
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from decodescope.analyzer.errors import InputError, TraceError
from decodescope.analyzer.files import GrowingFile
from decodescope.analyzer.protocol import (
    MAX_FRAME_BYTES,
    PROTOCOL_VERSION,
    Hello,
    Stats,
    TraceReady,
    WorkerMessage,
)
from decodescope.analyzer.schema.report import Finding

MAGIC = b"DSREC"
VERSION = 1
STATS_INTERVAL_NS = 250_000_000
_LENGTH = struct.Struct(">I")
_HEADER_BYTES = len(MAGIC) + 1
_GZIP_MAGIC = b"\x1f\x8b"


class _MessageFrame(Struct, frozen=True, array_like=True, tag="m"):
    t_ns: int
    message: WorkerMessage


class _WindowFrame(Struct, frozen=True, array_like=True, tag="w"):
    t_ns: int
    ready: TraceReady
    trace_gz: bytes


_Frame = _MessageFrame | _WindowFrame
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[_Frame] = msgspec.msgpack.Decoder(_Frame)


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A message of the worker, `t_ns` after the recording began, at byte `offset` of the file.

    A `TraceReady` has its window in the recording; `Recording.packed_trace` returns its trace.
    """

    t_ns: int
    message: WorkerMessage
    offset: int


@dataclass(frozen=True, slots=True)
class Recording:
    """The complete frames of a recording, which stay in the file until they are read.

    `windows` are the frames with a captured window, oldest first. `findings` lists what is wrong
    with the file: a tail that was cut off, an unreadable frame. `data` is the whole recording where
    it came through a pipe.
    """

    path: Path
    duration_ns: int
    windows: tuple[RecordedFrame, ...]
    findings: tuple[Finding, ...]
    end: int
    data: bytes | bytearray | None = None

    @property
    def frames(self) -> Iterator[RecordedFrame]:
        """All frames in the order they were written, each read when it is needed."""
        with self._open() as file:
            file.seek(_HEADER_BYTES)
            while file.tell() < self.end:
                offset = file.tell()
                yield _public(_read_frame(file), offset)

    def packed_trace(self, window: RecordedFrame) -> bytes:
        """The Kineto JSON of a window, gzipped: its readers unpack it piece by piece.

        Raises:
            TraceError: the embedded trace is not gzip.
        """
        with self._open() as file:
            file.seek(window.offset)
            frame = _read_frame(file)
        assert isinstance(frame, _WindowFrame)
        if not frame.trace_gz.startswith(_GZIP_MAGIC):
            raise TraceError(f"{self.path}: a recorded window cannot be unpacked; record it again")
        return frame.trace_gz

    def last_packed_trace(self) -> bytes:
        """The Kineto JSON of the last window, gzipped.

        Raises:
            TraceError: there is no window; also as `packed_trace`.
        """
        if not self.windows:
            raise TraceError(
                f"{self.path}: the recording holds no captured window; record a longer run"
            )
        return self.packed_trace(self.windows[-1])

    def _open(self) -> BinaryIO:
        return self.path.open("rb") if self.data is None else BytesIO(self.data)


class RecordingWriter:
    """Writes a recording, which gets its name on `close()` (see `GrowingFile`).

    To keep files small, it writes at most one `Stats` per `STATS_INTERVAL_NS`, and the first
    `max_windows_per_variant` automatic windows and as many requested ones of each variant. Its
    methods may be called from any thread; compressing a large window takes a while.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        max_windows_per_variant: int = 3,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._path = path
        self._max_windows = max_windows_per_variant
        self._clock_ns = clock_ns
        self._start_ns = clock_ns()
        self._lock = threading.Lock()
        self._frames = 0
        self._last_stats_ns: int | None = None
        self._windows: Counter[tuple[str, bool]] = Counter()
        self._file: GrowingFile | None = None
        try:
            self._file = GrowingFile(path)
            self._file.append(MAGIC + bytes([VERSION]))
        except OSError as error:
            raise self._abandon(error) from error

    def write(self, message: WorkerMessage) -> None:
        """Append `message`; a window's trace file is read and embedded, or skipped if it is gone.

        Raises:
            InputError: the file cannot be written (a full disk).
        """
        t_ns = self._clock_ns() - self._start_ns
        with self._lock:
            file = self._file
            frame = self._frame(t_ns, message) if file is not None else None
            if file is None or frame is None:
                return
            if len(body := _encoder.encode(frame)) > MAX_FRAME_BYTES:
                return
            try:
                file.append(_LENGTH.pack(len(body)) + body)
                self._frames += 1
            except OSError as error:
                raise self._abandon(error) from error

    def close(self) -> None:
        """Finish the file and give it its name, unless it is empty; a second call does nothing.

        Raises:
            InputError: the file cannot be written.
        """
        with self._lock:
            file, self._file = self._file, None
            if file is None:
                return
            try:
                file.close() if self._frames else file.discard()
            except OSError as error:
                raise self._abandon(error) from error

    def _frame(self, t_ns: int, message: WorkerMessage) -> _Frame | None:
        """The frame of a message, None for one that is left out."""
        if isinstance(message, TraceReady):
            return self._window_frame(t_ns, message)
        if isinstance(message, Stats):
            if self._last_stats_ns is not None and t_ns - self._last_stats_ns < STATS_INTERVAL_NS:
                return None
            self._last_stats_ns = t_ns
        return _MessageFrame(t_ns, message)

    def _window_frame(self, t_ns: int, ready: TraceReady) -> _WindowFrame | None:
        key = (ready.capture.variant, ready.requested)
        if self._windows[key] >= self._max_windows:
            return None
        source = Path(ready.path)
        try:
            trace_gz = gzip.compress(source.read_bytes(), mtime=0)
        except OSError:
            return None
        self._windows[key] += 1
        ready = msgspec.structs.replace(ready, path=source.name)
        return _WindowFrame(t_ns, ready, trace_gz)

    def _abandon(self, error: OSError) -> InputError:
        """Stop writing; complete frames stay readable under the partial name."""
        file, self._file = self._file, None
        if file is not None:
            file.abandon()
        return InputError(f"{self._path}: cannot write the recording ({error.strerror})")


def read_recording(path: Path | str) -> Recording:
    """Check the recording at `path` frame by frame, holding one frame in memory at a time.

    Raises:
        TraceError: the file does not exist, is not a recording, or has another version.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _scan(path, file)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def recording_in(data: bytes | bytearray, path: str) -> Recording:
    """The recording that these bytes are; `path` names it in errors.

    Raises:
        TraceError: they are not a recording, or one of another version.
    """
    return replace(_scan(Path(path), BytesIO(data)), data=data)


def _check_header(path: Path, file: BinaryIO) -> None:
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(MAGIC):
        raise TraceError(f"{path}: not a decodescope recording; record one with --record FILE")
    if header[-1] != VERSION:
        raise TraceError(
            f"{path}: recording of format {header[-1]}, this decodescope reads format {VERSION};"
            " open it with the version that wrote it"
        )


def _scan(path: Path, file: BinaryIO) -> Recording:
    _check_header(path, file)
    duration_ns = 0
    windows: list[RecordedFrame] = []
    findings: list[Finding] = []
    end = file.tell()
    while True:
        try:
            frame = _read_frame(file)
        except EOFError:
            break
        except TraceError as error:
            findings.append(
                Finding("recording_cut", f"{path}: {error} at byte {end}; kept the rest")
            )
            break
        if isinstance(frame, _WindowFrame):
            windows.append(_public(frame, end))
        elif isinstance(frame.message, Hello) and frame.message.protocol != PROTOCOL_VERSION:
            raise TraceError(
                f"{path}: recorded with worker protocol {frame.message.protocol}, this decodescope "
                f"reads {PROTOCOL_VERSION}; open it with the version that wrote it"
            )
        duration_ns = max(duration_ns, frame.t_ns)
        end = file.tell()
    return Recording(path, duration_ns, tuple(windows), tuple(findings), end)


def _read_frame(file: BinaryIO) -> _Frame:
    """The next frame; EOFError at the file's end, TraceError for one that is cut or unreadable."""
    prefix = file.read(_LENGTH.size)
    if not prefix:
        raise EOFError
    if len(prefix) < _LENGTH.size:
        raise TraceError("the recording ends inside a frame")
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_FRAME_BYTES:
        raise TraceError("the recording holds an unreadable frame")
    body = file.read(length)
    if len(body) < length:
        raise TraceError("the recording ends inside a frame")
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError("the recording holds an unreadable frame") from error


def _public(frame: _Frame, offset: int) -> RecordedFrame:
    message = frame.ready if isinstance(frame, _WindowFrame) else frame.message
    return RecordedFrame(frame.t_ns, message, offset)
