"""Reads recordings: the worker's messages of a live session, with times and captured windows.

The format is described in `frames`. One pass over the file checks every frame and notes where it
is, so that any moment of the recording can be read without what lies before it.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol import (
    PROTOCOL_VERSION,
    Heartbeat,
    Hello,
    Meters,
    State,
    Stats,
    TraceReady,
    WorkerMessage,
)
from decodescope.analyzer.recordings.frames import (
    HEADER,
    MAGIC,
    VERSION,
    WindowFrame,
    read_frame,
)
from decodescope.analyzer.schema.report import Finding

OLDER_EVENTS = 200
# Messages of which only the latest matters.
STATISTICS = (Stats, Meters, Heartbeat)
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A message of the worker, `t_ns` after the recording began, at byte `offset` of the file.

    A `TraceReady` has its window in the recording; `Recording.packed_trace` returns its trace.
    """

    t_ns: int
    message: WorkerMessage
    offset: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a recording that is worth a jump: a captured window, or the moment from which
    `variant` ran instead of another."""

    t_ns: int
    kind: Literal["window", "switch"]
    variant: str


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The complete frames of a recording, which stay in the file until they are read.

    `findings` lists what is wrong with the file: a tail that was cut off, an unreadable frame.
    `times_ns`, which never decrease, and `offsets` have one item a frame; `events` are all frames
    but statistics. `data` is the whole recording where it came through a pipe.
    """

    path: Path
    times_ns: "array[int]"
    offsets: "array[int]"
    events: tuple[RecordedFrame, ...]
    findings: tuple[Finding, ...]
    end: int
    data: bytes | bytearray | None = None

    @property
    def duration_ns(self) -> int:
        """The time of the last frame; 0 without frames."""
        return self.times_ns[-1] if self.times_ns else 0

    @property
    def windows(self) -> tuple[RecordedFrame, ...]:
        """The frames with a captured window, oldest first."""
        return tuple(frame for frame in self.events if isinstance(frame.message, TraceReady))

    @property
    def frames(self) -> Iterator[RecordedFrame]:
        """All frames in the order they were written, each read when it is needed."""
        return self.frames_from(0)

    def frames_from(self, number: int) -> Iterator[RecordedFrame]:
        """The frames from the one with this number on, each read when it is needed."""
        if number >= len(self.offsets):
            return
        with self._open() as file:
            file.seek(self.offsets[number])
            for t_ns, offset in zip(self.times_ns[number:], self.offsets[number:], strict=True):
                frame = read_frame(file)
                message = frame.ready if isinstance(frame, WindowFrame) else frame.message
                yield RecordedFrame(t_ns, message, offset)

    def number_after(self, t_ns: int) -> int:
        """The number of the first frame later than `t_ns`, and of frames up to then."""
        return bisect_right(self.times_ns, t_ns)

    def past(self, number: int, recent: int) -> list[RecordedFrame]:
        """What to know of the frames before the one with this number, oldest first: the last
        `recent` of them, and of those before what still holds or is worth reading. Only the last
        window of each variant is kept.

        Raises:
            TraceError, EOFError, OSError: the file has changed since it was read.
        """
        first = max(number - recent, 0)
        start = self.offsets[first] if first < len(self.offsets) else self.end
        count = bisect_left(self.events, start, key=lambda event: event.offset)
        tail = islice(self.frames_from(first), number - first)
        return _last_windows([*_still_valid(self.events[:count]), *tail])

    def marks(self) -> tuple[Mark, ...]:
        """Its windows and its changes of variant, in order."""
        marks, variant = [], ""
        for frame in self.events:
            match frame.message:
                case TraceReady(capture=capture):
                    marks.append(Mark(frame.t_ns, "window", capture.variant))
                case State(variant=name) if name and name != variant:
                    marks.append(Mark(frame.t_ns, "switch", name))
                    variant = name
        return tuple(marks)

    def packed_trace(self, window: RecordedFrame) -> bytes:
        """The Kineto JSON of a window, gzipped: its readers unpack it piece by piece.

        Raises:
            TraceError: the embedded trace is not gzip.
        """
        with self._open() as file:
            file.seek(window.offset)
            frame = read_frame(file)
        assert isinstance(frame, WindowFrame)
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


def read_recording(path: Path | str, most: int | None = None) -> Recording:
    """Check the recording at `path` frame by frame, holding one frame in memory at a time; with
    `most`, only that many frames, and the rest is left unread.

    Raises:
        TraceError: the file does not exist, is not a recording, or has another version.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _scan(path, file, most)
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
    return replace(_scan(Path(path), BytesIO(data), None), data=data)


def _check_header(path: Path, file: BinaryIO) -> None:
    header = file.read(len(HEADER))
    if len(header) < len(HEADER) or not header.startswith(MAGIC):
        raise TraceError(f"{path}: not a decodescope recording; record one with --record FILE")
    if header[-1] != VERSION:
        raise TraceError(
            f"{path}: recording of format {header[-1]}, this decodescope reads format {VERSION};"
            " open it with the version that wrote it"
        )


def _scan(path: Path, file: BinaryIO, most: int | None) -> Recording:
    _check_header(path, file)
    times_ns, offsets = array("q"), array("q")
    events: list[RecordedFrame] = []
    findings: list[Finding] = []
    end = file.tell()
    while most is None or len(offsets) < most:
        try:
            frame = read_frame(file)
        except EOFError:
            break
        except TraceError as error:
            findings.append(
                Finding("recording_cut", f"{path}: {error} at byte {end}; kept the rest")
            )
            break
        message = frame.ready if isinstance(frame, WindowFrame) else frame.message
        _check_protocol(path, message)
        times_ns.append(max(frame.t_ns, times_ns[-1] if times_ns else 0))
        offsets.append(end)
        if not isinstance(message, STATISTICS):
            events.append(RecordedFrame(times_ns[-1], message, end))
        end = file.tell()
    return Recording(path, times_ns, offsets, tuple(events), tuple(findings), end)


def _check_protocol(path: Path, message: WorkerMessage) -> None:
    if isinstance(message, Hello) and message.protocol > PROTOCOL_VERSION:
        raise TraceError(
            f"{path}: recorded with worker protocol {message.protocol}, this decodescope "
            f"reads up to {PROTOCOL_VERSION}; open it with the version that wrote it"
        )


def _still_valid(events: Sequence[RecordedFrame]) -> list[RecordedFrame]:
    """The last greeting, the last state, all windows and the last `OLDER_EVENTS` others."""
    kept: list[RecordedFrame] = []
    seen: set[type] = set()
    others = 0
    for event in reversed(events):
        kind = type(event.message)
        if kind in (Hello, State):
            if kind in seen:
                continue
            seen.add(kind)
        elif kind is not TraceReady:
            others += 1
            if others > OLDER_EVENTS:
                continue
        kept.append(event)
    return kept[::-1]


def _last_windows(frames: Sequence[RecordedFrame]) -> list[RecordedFrame]:
    kept: list[RecordedFrame] = []
    seen: set[str] = set()
    for frame in reversed(frames):
        if isinstance(frame.message, TraceReady):
            if frame.message.capture.variant in seen:
                continue
            seen.add(frame.message.capture.variant)
        kept.append(frame)
    return kept[::-1]
