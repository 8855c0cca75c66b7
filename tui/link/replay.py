"""Plays a recording as if its worker were running."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import (
    AppMessage,
    Bye,
    Failure,
    Log,
    Pause,
    Resume,
    State,
    TraceReady,
    WorkerMessage,
)
from decodescope.analyzer.recordings.recording import RecordedFrame, Recording, read_recording
from decodescope.tui.link.base import Link, LinkEvent

END_REASON = "end of recording"
MAX_WAIT_S = 1.0
_KEPT_WINDOWS = 4


class ReplayLink(Link):
    """Plays the recording at `path` with its own timing.

    Silences longer than `MAX_WAIT_S` (a model loading, a compilation) are shortened to it. Only
    Pause and Resume have an effect: they stop and continue the replay's clock. After the last frame
    comes `Bye("end of recording")`, then nothing until `restart()` or `close()`. Each window is
    copied to its own file, so `TraceReady` is handled as from a worker. A recording that cannot
    be read is a fatal `Failure`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._frames: Iterator[RecordedFrame] = iter(())
        self._recording: Recording | None = None
        self._waiting: list[LinkEvent] = []
        self._upcoming: RecordedFrame | None = None
        self._finished = True
        self._closed = False
        self._changed = asyncio.Event()
        self._clock = _ReplayClock()
        self._variant = ""
        self._dir: Path | None = None
        self._files: list[Path] = []

    async def start(self) -> None:
        try:
            self._recording = await asyncio.to_thread(read_recording, self._path)
        except DecodescopeError as error:
            self._waiting = [Failure(str(error), error.exit_code, fatal=True), Bye(str(error))]
            self._finished = True
            return
        self._frames = self._recording.frames
        self._waiting = [Log("warning", f.message) for f in self._recording.findings]
        self._upcoming = None
        self._finished = False
        self._clock = _ReplayClock()

    async def receive(self) -> LinkEvent | None:
        while not self._closed:
            if self._waiting:
                return self._waiting.pop(0)
            self._changed.clear()
            if self._upcoming is None and not self._finished:
                self._advance()
                continue
            frame = self._upcoming
            if frame is None:
                await self._changed.wait()
            elif await self._due(frame.t_ns) and self._upcoming is frame:
                self._upcoming = None
                return await self._message(frame)
        return None

    async def send(self, message: AppMessage) -> None:
        if self._finished:
            return
        if isinstance(message, Pause) and not self._clock.paused:
            self._clock.pause()
            self._waiting.append(State("paused", self._variant))
        elif isinstance(message, Resume) and self._clock.paused:
            self._clock.resume()
            self._waiting.append(State("running", self._variant))
        self._changed.set()

    async def restart(self) -> None:
        self._frames = iter(())
        self._remove_files(keep=0)
        await self.start()
        self._changed.set()

    async def close(self) -> None:
        self._closed = True
        self._finished = True
        self._frames = iter(())
        self._changed.set()
        if self._dir is not None:
            await asyncio.to_thread(shutil.rmtree, self._dir, ignore_errors=True)
            self._dir = None

    def _advance(self) -> None:
        try:
            self._upcoming = next(self._frames, None)
        except (DecodescopeError, EOFError, OSError) as error:
            self._waiting.append(Log("warning", f"{self._path}: changed while it played ({error})"))
        if self._upcoming is None:
            self._finished = True
            self._waiting.append(Bye(END_REASON))
        else:
            self._clock.skip_to(self._upcoming.t_ns / 1e9 - MAX_WAIT_S)

    async def _due(self, t_ns: int) -> bool:
        """Wait until the replay's clock reaches `t_ns`; False if something changed earlier."""
        left_s = self._clock.seconds_until(t_ns)
        if left_s is not None and left_s <= 0:
            return True
        try:
            await asyncio.wait_for(self._changed.wait(), left_s)
        except TimeoutError:
            return True
        return False

    async def _message(self, frame: RecordedFrame) -> WorkerMessage:
        if isinstance(frame.message, TraceReady):
            return await self._copied(frame, frame.message)
        if isinstance(frame.message, State):
            self._variant = frame.message.variant
        return frame.message

    async def _copied(self, window: RecordedFrame, ready: TraceReady) -> WorkerMessage:
        assert self._recording is not None
        if self._dir is None:
            self._dir = Path(tempfile.mkdtemp(prefix="decodescope-replay-"))
        target = self._dir / f"window-{window.offset}.json.gz"
        try:
            packed = await asyncio.to_thread(self._recording.packed_trace, window)
            await asyncio.to_thread(target.write_bytes, packed)
        except DecodescopeError as error:
            return Log("warning", str(error))
        except OSError as error:
            return Log("warning", f"{target}: a window cannot be copied ({error.strerror})")
        self._files.append(target)
        self._remove_files(keep=_KEPT_WINDOWS)
        return msgspec.structs.replace(ready, path=str(target))

    def _remove_files(self, keep: int) -> None:
        while len(self._files) > keep:
            self._files.pop(0).unlink(missing_ok=True)


class _ReplayClock:
    """Recorded time: runs as fast as real time, and can be paused."""

    def __init__(self) -> None:
        self._elapsed_s = 0.0
        self._since: float | None = time.monotonic()

    @property
    def paused(self) -> bool:
        return self._since is None

    def pause(self) -> None:
        self._elapsed_s = self._now()
        self._since = None

    def resume(self) -> None:
        self._since = time.monotonic()

    def skip_to(self, t_s: float) -> None:
        """Jump forward to `t_s` unless it has passed."""
        self._elapsed_s += max(0.0, t_s - self._now())

    def seconds_until(self, t_ns: int) -> float | None:
        """Real seconds until recorded time `t_ns`; None while the clock is paused."""
        if self._since is None:
            return None
        return t_ns / 1e9 - self._now()

    def _now(self) -> float:
        if self._since is None:
            return self._elapsed_s
        return self._elapsed_s + time.monotonic() - self._since
