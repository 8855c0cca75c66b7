"""Reads recordings: the worker's messages of a live session, with times and captured windows.

The format is described in `frames`. One pass over the file checks every frame and notes where it
is, so that any moment of the recording can be read without what lies before it. The pass can go on
later, where it ended, if the file has grown.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.attach_messages import ServerSample, Target, WindowTaken
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    Heartbeat,
    Hello,
    Meters,
    State,
    Stats,
    TraceReady,
)
from decodescope.analyzer.recordings.frames import (
    HEADER,
    MAGIC,
    VERSION,
    CutFrame,
    Frame,
    RecordedMessage,
    TakenFrame,
    UnknownFrame,
    WindowFrame,
    read_frame,
)
from decodescope.analyzer.schema.report import Finding, LiveRates

OLDER_EVENTS = 200
_RECENT_RATES = 64
# Messages of which only the latest matters.
STATISTICS = (Stats, Meters, Heartbeat, ServerSample)
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A message, `t_ns` after the recording began, at byte `offset` of the file.

    A `TraceReady` or `WindowTaken` has its window in the recording; `Recording.packed_traces`
    returns its traces.
    """

    t_ns: int
    message: RecordedMessage
    offset: int


@dataclass(frozen=True, slots=True)
class RecordingMark:
    """A place in a recording that is worth a jump: a captured window, or the moment from which
    `variant` ran instead of another."""

    t_ns: int
    kind: Literal["window", "switch"]
    variant: str


@dataclass(slots=True, eq=False)
class Recording:
    """The complete frames of a recording, which stay in the file until they are read; `opened`
    opens it.

    `cut` says where the file is damaged or ends inside a frame, "" if it does not. `unknown` counts
    frames that a later version wrote and that are left out; `newest` is the greeting with the
    latest protocol. `times_ns`, which never decrease, and `offsets` have one item a frame; `events`
    are all frames but statistics. They only grow, by `read_on`; everything else may run in other
    threads.
    """

    path: Path
    opened: Callable[[], BinaryIO]
    times_ns: "array[int]" = field(default_factory=lambda: array("q"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    events: list[RecordedFrame] = field(default_factory=list)
    cut: str = ""
    unknown: int = 0
    newest: Hello | None = None
    end: int = 0
    version: int = 0

    def read_on(self, most: int | None = None, growing: bool = False) -> None:
        """Check what follows the frames that are known, holding one in memory at a time; with
        `most`, up to that many in all. If it is `growing`, an incomplete last frame is left for
        later. Nothing follows a damaged frame.

        Raises:
            TraceError: the file is not a recording, or has another version.
            OSError: it cannot be read.
        """
        with self.opened() as file:
            if not self.version:
                self.version = _version(self.path, file)
                self.end = file.tell()
            file.seek(self.end)
            while not self.cut and (most is None or len(self.offsets) < most):
                try:
                    self._add(read_frame(file, self.version))
                except EOFError:
                    break
                except UnknownFrame:
                    self.unknown += 1
                except TraceError as error:
                    if not (growing and isinstance(error, CutFrame)):
                        self.cut = f"{error} at byte {self.end}; kept what is before it"
                    break
                self.end = file.tell()

    def _add(self, frame: Frame) -> None:
        message, t_ns = frame.message, max(frame.t_ns, self.duration_ns)
        if not isinstance(message, STATISTICS):
            self.events.append(RecordedFrame(t_ns, message, self.end))
        if isinstance(message, Hello):
            self.newest = max(self.newest or message, message, key=lambda one: one.protocol)
        self.offsets.append(self.end)
        # Last: whoever sees it in another thread finds all of the frame.
        self.times_ns.append(t_ns)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The damage of the file, and the frames of a later version that are left out."""
        found = [Finding("recording_cut", f"{self.path}: {self.cut}")] if self.cut else []
        newest = self.newest
        if self.unknown or (newest is not None and newest.protocol > PROTOCOL_VERSION):
            writer = None if newest is None else newest.environment.get("decodescope")
            message = (
                f"{self.path}: recorded by a later decodescope; {self.unknown} frames are left out;"
                f" open it with {f'version {writer}' if writer else 'that version'}"
            )
            found.append(Finding("recording_newer", message))
        return tuple(found)

    @property
    def duration_ns(self) -> int:
        return self.times_ns[-1] if self.times_ns else 0

    @property
    def windows(self) -> tuple[RecordedFrame, ...]:
        return tuple(
            frame for frame in self.events if isinstance(frame.message, TraceReady | WindowTaken)
        )

    def frames(self, number: int = 0) -> Iterator[RecordedFrame]:
        """The frames from the one with this number on, in the order they were written, each read
        when it is needed; also those that are added before the last one was taken."""
        if number >= len(self.times_ns):
            return
        with self.opened() as file:
            while number < len(self.times_ns):
                file.seek(self.offsets[number])
                message = read_frame(file, self.version).message
                yield RecordedFrame(self.times_ns[number], message, self.offsets[number])
                number += 1

    def number_after(self, t_ns: int) -> int:
        """The number of the first frame later than `t_ns`, and of frames up to then."""
        return bisect_right(self.times_ns, t_ns)

    def past(self, number: int, recent: int) -> list[RecordedFrame]:
        """The frames before the one with this number that still matter, oldest first: the last
        `recent` of them, and of those before the ones that still hold or are worth reading. Only
        the last window of each variant is kept.

        Raises:
            TraceError, EOFError, OSError: the file has changed since it was read.
        """
        first = max(number - recent, 0)
        start = self.offsets[first] if first < len(self.offsets) else self.end
        count = bisect_left(self.events, start, key=lambda event: event.offset)
        tail = islice(self.frames(first), number - first)
        return _that_matter([*self.events[:count], *tail], start)

    def marks(self) -> tuple[RecordingMark, ...]:
        """Its windows and its changes of variant, in order."""
        marks, variant, taken = [], "", 0
        for frame in self.events:
            match frame.message:
                case WindowTaken():
                    taken += 1
                    marks.append(RecordingMark(frame.t_ns, "window", f"window-{taken}"))
                case TraceReady(capture=capture):
                    marks.append(RecordingMark(frame.t_ns, "window", capture.variant))
                case State(variant=name) if name and name != variant:
                    marks.append(RecordingMark(frame.t_ns, "switch", name))
                    variant = name
        return tuple(marks)

    def packed_traces(self, window: RecordedFrame) -> tuple[bytes, ...]:
        """The Kineto JSON of a window, gzipped: its readers unpack it piece by piece. One trace a
        rank.

        Raises:
            TraceError: its embedded traces are not what they should be.
        """
        with self.opened() as file:
            file.seek(window.offset)
            frame = read_frame(file, self.version)
        count, packed = 1, tuple[bytes, ...]()
        if isinstance(frame, WindowFrame):
            count, packed = 1 + len(frame.message.others), frame.traces_gz
        elif isinstance(frame, TakenFrame):
            count, packed = max(len(frame.message.paths), 1), frame.traces_gz
        if len(packed) != count or not all(one.startswith(_GZIP_MAGIC) for one in packed):
            raise TraceError(f"{self.path}: a recorded window cannot be unpacked; record it again")
        return packed

    def rates_at(self, window: RecordedFrame) -> LiveRates | None:
        """The rates that a worker reported last before a window, of its variant; None without
        any."""
        if not isinstance(window.message, TraceReady):
            return None
        number = bisect_left(self.offsets, window.offset)
        first = max(number - _RECENT_RATES, 0)
        rates, variant = None, window.message.capture.variant
        for frame in islice(self.frames(first), number - first):
            if isinstance(frame.message, Stats) and frame.message.variant == variant:
                rates = frame.message.rates
        return rates

    def last_packed_traces(self) -> tuple[bytes, ...]:
        """The Kineto JSON of the last window, gzipped, one trace a rank.

        Raises:
            TraceError: there is no window; also as `packed_traces`.
        """
        if not self.windows:
            raise TraceError(
                f"{self.path}: the recording holds no captured window; record a longer run"
            )
        return self.packed_traces(self.windows[-1])


def read_recording(path: Path | str, most: int | None = None) -> Recording:
    """Check the recording at `path` frame by frame, holding one frame in memory at a time; with
    `most`, only that many frames, and the rest is left unread.

    Raises:
        TraceError: the file does not exist, is not a recording, or has another version.
    """
    where = Path(path)
    recording = Recording(where, lambda: where.open("rb"))
    try:
        recording.read_on(most)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
    return recording


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does; False if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def recorded_target(path: Path) -> Target | None:
    """The subject of the recording, if that ran already; None if it is of a worker, or cannot be
    read."""
    try:
        events = read_recording(path, 1).events
    except TraceError:
        return None
    first = events[0].message if events else None
    return first if isinstance(first, Target) else None


def recording_in(data: bytes | bytearray, path: str) -> Recording:
    """The recording that these bytes are; `path` names it in errors.

    Raises:
        TraceError: they are not a recording, or one of another version.
    """
    recording = Recording(Path(path), lambda: BytesIO(data))
    recording.read_on()
    return recording


def _version(path: Path, file: BinaryIO) -> int:
    header = file.read(len(HEADER))
    if len(header) < len(HEADER) or not header.startswith(MAGIC):
        raise TraceError(f"{path}: not a decodescope recording; record one with --record FILE")
    if not 1 <= header[-1] <= VERSION:
        raise TraceError(
            f"{path}: recording of format {header[-1]}, this decodescope reads up to {VERSION};"
            " open it with the version that wrote it"
        )
    return header[-1]


def _that_matter(frames: Sequence[RecordedFrame], recent: int) -> list[RecordedFrame]:
    """The last window of each variant and all windows of a target, the frames from byte `recent`
    on, and of those before it the last greeting, the last state and the last `OLDER_EVENTS`
    others."""
    kept: list[RecordedFrame] = []
    seen: set[object] = set()
    others = 0
    for frame in reversed(frames):
        key: object = frame.offset
        if isinstance(frame.message, TraceReady):
            key = frame.message.capture.variant
        elif isinstance(frame.message, Target | WindowTaken):
            pass
        elif frame.offset < recent and isinstance(frame.message, Hello | State):
            key = type(frame.message)
        elif frame.offset < recent:
            others += 1
            if others > OLDER_EVENTS:
                continue
        if key not in seen:
            kept.append(frame)
            seen.add(key)
    return kept[::-1]
