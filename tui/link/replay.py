"""Plays a recording as if its worker were running, from any moment and at any speed."""

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.attach_messages import WindowTaken
from decodescope.analyzer.protocol.messages import (
    Bye,
    Failure,
    Log,
    Pause,
    Resume,
    State,
    TraceReady,
)
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.recordings.recording import (
    RecordedFrame,
    Recording,
    RecordingMark,
    read_recording,
)
from decodescope.tui.link.base import (
    FileHealth,
    Jumped,
    Link,
    LinkEvent,
    LinkMessage,
    Playback,
    Seek,
    Speed,
)

END_REASON = "end of recording"
MAX_WAIT_S = 1.0
RECENT_FRAMES = 2400
_YIELD_S = 0.01
_NS = 1_000_000_000


class ReplayLink(Link):
    """Plays the recording at `path`.

    It opens on its last captured window, or on its end without one, and is paused there. `Resume`
    and `Pause` start and stop the replay's clock, `Speed` makes it faster or slower, `Seek` sets
    it; other messages have no effect. A jump is one event, `Jumped`. Silences longer than
    `MAX_WAIT_S` (a model loading, a compilation) are shortened to it. After the last frame comes
    `Bye("end of recording")`, then nothing until a jump, `restart()` or `close()`. A window is
    copied to its own file once, so `TraceReady` is handled as from a worker. A recording that
    cannot be read is a fatal `Failure`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._recording: Recording | None = None
        self._marks: tuple[RecordingMark, ...] = ()
        self._frames: Iterator[RecordedFrame] = iter(())
        self._number = 0
        self._jumping = False
        self._arrived = False
        self._waiting: deque[LinkEvent] = deque()
        self._ended = True
        self._closed = False
        self._changed = asyncio.Event()
        self._clock = _ReplayClock()
        self._yielded_s = 0.0
        self._folder: WorkFolder | None = None

    async def start(self) -> None:
        recording = await self._read()
        if recording is not None:
            windows = recording.windows
            self._jump_to(windows[-1].t_ns if windows else recording.duration_ns)

    async def receive(self) -> LinkEvent | None:
        while not self._closed:
            self._changed.clear()
            if self._waiting:
                event = self._waiting.popleft()
                self._arrived |= isinstance(event, Jumped) and not self._jumping
                return event
            recording = self._recording
            try:
                if recording is None or (self._ended and not self._jumping):
                    await self._changed.wait()
                elif self._jumping:
                    await self._jump(recording)
                elif self._number >= len(recording.times_ns):
                    await self._at_end()
                elif await self._due(recording.times_ns[self._number]):
                    await self._play(recording)
            except (DecodescopeError, EOFError, OSError) as error:
                self._broken(error)
        return None

    async def send(self, message: LinkMessage) -> None:
        match message:
            case Pause():
                self._clock.pause()
            case Resume() if not self._ended:
                self._clock.resume()
            case Speed(factor=factor):
                self._clock.run_at(factor)
            case Seek(t_ns=t_ns) if self._recording is not None:
                self._jump_to(min(max(t_ns, 0), self._recording.duration_ns))
        self._changed.set()

    async def restart(self) -> None:
        """Read the file again, which may have grown, and play it from its start."""
        if await self._read() is not None:
            self._jump_to(-1)
            self._clock.resume()
        self._changed.set()

    async def close(self) -> None:
        self._closed = True
        self._frames = iter(())
        self._changed.set()
        if self._folder is not None:
            await asyncio.to_thread(self._folder.remove)
            self._folder = None

    def playback(self) -> Playback | None:
        if self._recording is None:
            return None
        return Playback(
            position_ns=self._position_ns(),
            duration_ns=self._recording.duration_ns,
            speed=self._clock.speed,
            state="ended" if self._ended else "paused" if self._clock.paused else "playing",
            marks=self._marks,
            arrived=self._arrived,
        )

    def now(self, monotonic_s: float) -> float:
        """The recorded time, so that ages and histories are those of the recorded run."""
        return self._position_ns() / _NS

    def _position_ns(self) -> int:
        """The clock's time, but never past a frame that was not delivered yet."""
        if self._recording is None:
            return 0
        times_ns, number = self._recording.times_ns, self._number
        next_ns = times_ns[number] if number < len(times_ns) else self._recording.duration_ns
        return min(max(self._clock.now_ns(), 0), next_ns)

    async def _read(self) -> Recording | None:
        self._jumping, self._ended, self._frames = False, True, iter(())
        self._clock.pause()
        try:
            self._recording = await asyncio.to_thread(self._load)
        except DecodescopeError as error:
            self._recording = None
            self._waiting.extend((Failure(str(error), error.exit_code, True), Bye(str(error))))
            return None
        self._marks = self._recording.marks()
        if self._recording.findings:
            self._waiting.append(FileHealth(self._recording.findings))
        return self._recording

    def _load(self) -> Recording:
        return read_recording(self._path)

    def _jump_to(self, t_ns: int) -> None:
        """Take effect at once in `playback`; the next `receive` delivers the event."""
        assert self._recording is not None
        if self._ended:
            self._clock.pause()
        self._clock.set(t_ns)
        self._number = self._recording.number_after(t_ns)
        self._jumping, self._arrived, self._ended = True, False, False

    async def _jump(self, recording: Recording) -> None:
        number, t_ns = self._number, self._position_ns()
        self._jumping = False
        past = await asyncio.to_thread(recording.past, number, RECENT_FRAMES)
        events = [
            (frame.t_ns, await self._message(recording, frame))
            for frame in _without_other_variants(past)
        ]
        if not self._jumping:
            self._frames = recording.frames(number)
            self._waiting.append(Jumped(t_ns, tuple(events)))

    async def _play(self, recording: Recording) -> None:
        frame = next(self._frames)
        self._number += 1
        self._clock.skip_to(frame.t_ns)
        message = await self._message(recording, frame)
        if time.monotonic() - self._yielded_s > _YIELD_S:
            # At full speed no frame is waited for, and keys and paints need their turn.
            await asyncio.sleep(0)
            self._yielded_s = time.monotonic()
        if not self._jumping:
            self._waiting.append(message)

    async def _at_end(self) -> None:
        self._end(Bye(END_REASON))

    def _end(self, *events: LinkEvent) -> None:
        self._waiting.extend(events)
        self._clock.pause()
        self._ended = True

    def _broken(self, error: Exception) -> None:
        changed = Log("warning", f"{self._path}: changed while it played ({error})")
        self._end(changed, Bye(END_REASON))

    async def _due(self, t_ns: int) -> bool:
        """Wait until the replay's clock reaches `t_ns`; False if something changed earlier."""
        left_s = self._clock.seconds_until(t_ns)
        if left_s is not None and left_s <= 0:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), left_s)
            return False
        return True

    async def _message(self, recording: Recording, frame: RecordedFrame) -> RecordedMessage:
        """The message of `frame`; the traces of a window get files of their own."""
        message = frame.message
        if not isinstance(message, TraceReady | WindowTaken):
            return message
        target = None
        try:
            # Not in a thread: the folder would be lost if the replay is closed meanwhile.
            self._folder = self._folder or WorkFolder()
            names = message.paths if isinstance(message, WindowTaken) else message.others
            count = len(names) + isinstance(message, TraceReady)
            targets = [
                self._folder.path / f"window-{frame.offset}{f'-{place}' if place else ''}.json.gz"
                for place in range(count)
            ]
            if not all(target.exists() for target in targets):
                packed = await asyncio.to_thread(recording.packed_traces, frame)
                for target, trace_gz in zip(targets, packed, strict=True):
                    await asyncio.to_thread(target.write_bytes, trace_gz)
        except DecodescopeError as error:
            return Log("warning", str(error))
        except OSError as error:
            if target is not None:
                target.unlink(missing_ok=True)
            where = target or "the temporary folder"
            return Log("warning", f"{where}: a window cannot be copied ({error.strerror})")
        if isinstance(message, WindowTaken):
            return msgspec.structs.replace(message, paths=tuple(map(str, targets)))
        first, *others = map(str, targets)
        return msgspec.structs.replace(message, path=first, others=tuple(others))


def _without_other_variants(past: list[RecordedFrame]) -> list[RecordedFrame]:
    """`past` with the window of the variant that ran last, and no other window."""
    states = [frame.message.variant for frame in past if isinstance(frame.message, State)]
    last = next(filter(None, reversed(states)), "")
    return [
        frame
        for frame in past
        if not isinstance(frame.message, TraceReady) or frame.message.capture.variant == last
    ]


class _ReplayClock:
    """Recorded time: runs `speed` times as fast as real time, and can be paused. At an infinite
    speed it stands still and nothing is waited for."""

    def __init__(self) -> None:
        self.speed = 1.0
        self._at_ns = 0
        self._since: float | None = None

    @property
    def paused(self) -> bool:
        return self._since is None

    def pause(self) -> None:
        self._at_ns, self._since = self.now_ns(), None

    def resume(self) -> None:
        self.set(self.now_ns())
        self._since = time.monotonic()

    def run_at(self, speed: float) -> None:
        self.set(self.now_ns())
        self.speed = speed

    def set(self, t_ns: int) -> None:
        self._at_ns = t_ns
        self._since = None if self._since is None else time.monotonic()

    def skip_to(self, t_ns: int) -> None:
        if t_ns > self.now_ns():
            self.set(t_ns)

    def seconds_until(self, t_ns: int) -> float | None:
        """Real seconds until recorded time `t_ns`, at most `MAX_WAIT_S`; None while paused."""
        if self._since is None:
            return None
        if math.isinf(self.speed):
            return 0.0
        self.skip_to(t_ns - round(MAX_WAIT_S * max(self.speed, 1.0) * _NS))
        return (t_ns - self.now_ns()) / self.speed / _NS

    def now_ns(self) -> int:
        if self._since is None or math.isinf(self.speed):
            return self._at_ns
        return self._at_ns + round((time.monotonic() - self._since) * self.speed * _NS)
