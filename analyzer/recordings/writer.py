"""Writes a recording while a session runs."""

import gzip
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import GrowingFile
from decodescope.analyzer.protocol.attach_messages import ServerSample, WindowFailed, WindowTaken
from decodescope.analyzer.protocol.messages import (
    MAX_FRAME_BYTES,
    Heartbeat,
    Hello,
    Stats,
    TraceReady,
)
from decodescope.analyzer.recordings.frames import (
    HEADER,
    STATS_INTERVAL_NS,
    Frame,
    MessageFrame,
    RecordedMessage,
    TakenFrame,
    WindowFrame,
    encoded,
)

_FIGURES = (Stats, TraceReady, ServerSample, WindowTaken)
# What a frame holds beside its traces, at most.
_OTHER_BYTES = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
WINDOW_INTERVAL_NS = 300_000_000_000


class RecordingWriter:
    """Writes a recording, which gets its name on `close()` (see `GrowingFile`).

    To keep files small, it writes at most one `Stats` per `STATS_INTERVAL_NS` and no `Heartbeat`.
    Of each variant's automatic windows it writes the first `max_windows_per_variant` after each
    `Hello`, and then one per `WINDOW_INTERVAL_NS`, for whoever follows a long run. Every requested
    window is written. Its methods may be called from any thread; compressing a large window
    takes a while. A recording without a `Stats` and a window replaces no older file. `note` is a
    line for the user if the file is not what was asked for, else "".

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
        self._has_figures = False
        self.note = ""
        self._last_stats_ns: int | None = None
        self._windows: Counter[str] = Counter()
        self._last_window_ns: dict[str, int] = {}
        self._file: GrowingFile | None = None
        try:
            self._file = GrowingFile(path)
            self._file.append(HEADER)
        except OSError as error:
            raise self._abandon(error) from error

    def write(self, message: RecordedMessage) -> None:
        """Append `message`; a window's trace file is read and embedded, or skipped if it is gone.

        Raises:
            InputError: the file cannot be written (a full disk).
        """
        t_ns = self._clock_ns() - self._start_ns
        with self._lock:
            frame = None if self._file is None else self._frame(t_ns, message)
            if self._file is None or frame is None or (data := encoded(frame)) is None:
                return
            try:
                self._file.append(data)
                self._frames += 1
                self._has_figures |= isinstance(message, _FIGURES)
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
                if self._has_figures or (self._frames and not self._path.exists()):
                    file.close()
                    return
                file.discard()
                if self._frames:
                    self.note = (
                        f"{self._path}: not replaced; the run ended before its first figures"
                    )
            except OSError as error:
                raise self._abandon(error) from error

    def _frame(self, t_ns: int, message: RecordedMessage) -> Frame | None:
        if isinstance(message, TraceReady):
            return self._window_frame(t_ns, message)
        if isinstance(message, WindowTaken):
            return _taken_frame(t_ns, message)
        if isinstance(message, Heartbeat):
            return None
        if isinstance(message, Hello):
            self._windows.clear()
        if isinstance(message, Stats):
            if self._last_stats_ns is not None and t_ns - self._last_stats_ns < STATS_INTERVAL_NS:
                return None
            self._last_stats_ns = t_ns
        return MessageFrame(t_ns, message)

    def _window_frame(self, t_ns: int, ready: TraceReady) -> WindowFrame | None:
        variant = ready.capture.variant
        many = self._windows[variant] >= self._max_windows
        recent = t_ns - self._last_window_ns.get(variant, 0) < WINDOW_INTERVAL_NS
        if not ready.requested and many and recent:
            return None
        sources = [Path(path) for path in (ready.path, *ready.others)]
        try:
            trace_gz, *others_gz = map(packed_trace, sources)
        except OSError:
            return None
        self._last_window_ns[variant] = t_ns
        self._windows[variant] += not ready.requested
        name, *others = (source.name for source in sources)
        ready = msgspec.structs.replace(ready, path=name, others=tuple(others))
        return WindowFrame(t_ns, ready, trace_gz, tuple(others_gz))

    def _abandon(self, error: OSError) -> InputError:
        """Stop writing; complete frames stay readable under the partial name, if there are any."""
        file, self._file = self._file, None
        self.note = f"{self._path}: cannot write the recording ({error.strerror})"
        if file is None:
            return InputError(self.note)
        if not self._frames:
            with suppress(OSError):  # a disk that fails
                file.discard()
            return InputError(self.note)
        file.abandon()
        if file.partial is not None:
            self.note += f"; {file.partial} holds what came before"
        return InputError(self.note)


def _taken_frame(t_ns: int, taken: WindowTaken) -> Frame:
    """The window with its traces; why they are left out, where they cannot be kept."""
    sources = [Path(path) for path in taken.paths]
    try:
        traces_gz = tuple(map(packed_trace, sources))
    except OSError as error:
        why = f"{error.filename}: cannot be read ({error.strerror}); it is not in the recording"
        return MessageFrame(t_ns, WindowFailed(why))
    if sum(map(len, traces_gz)) > MAX_FRAME_BYTES - _OTHER_BYTES:
        why = (
            f"{sources[0].parent}: the traces of this window take over {MAX_FRAME_BYTES >> 20} MB; "
            "they are not in the recording"
        )
        return MessageFrame(t_ns, WindowFailed(why))
    names = tuple(source.name for source in sources)
    return TakenFrame(t_ns, msgspec.structs.replace(taken, paths=names), traces_gz)


def packed_trace(source: Path) -> bytes:
    """The gzipped trace at `source`, which may be gzipped already.

    Raises:
        OSError: it cannot be read.
    """
    data = source.read_bytes()
    return data if data.startswith(_GZIP_MAGIC) else gzip.compress(data, mtime=0)
