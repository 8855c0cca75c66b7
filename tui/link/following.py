"""Plays a recording while a run writes it."""

import asyncio
import contextlib

import msgspec

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.messages import Log, Pause
from decodescope.analyzer.recordings.following import FollowedRecording
from decodescope.analyzer.recordings.recording import Recording
from decodescope.analyzer.schema.report import Finding
from decodescope.tui.link.base import FileHealth, LinkMessage, Playback, Seek, Speed
from decodescope.tui.link.replay import ReplayLink

POLL_S = 0.1
_NS = 1_000_000_000
_COMPLETE = "the run has ended, and its recording is complete"
_ENDINGS = {
    "unfinished": "the run that wrote it was killed, or could no longer write",
    "removed": "it was removed, and cannot be opened again",
}


class FollowLink(ReplayLink):
    """Plays a recording that is being written, from its newest moment on.

    It follows: after the last frame it waits for the next one, and delivers it when it comes.
    `Pause` holds it. `Seek` leads to an earlier moment, from which it plays and may catch up;
    `Seek(NEWEST_NS)` follows again. When nobody writes any more it is as any `ReplayLink`, and
    a `FileHealth` says if the run did not finish the recording. The file is read by its descriptor,
    so it stays readable whatever becomes of its name.
    """

    def __init__(self, followed: FollowedRecording) -> None:
        super().__init__(followed.path)
        self._followed = followed
        self._watching: asyncio.Task[None] | None = None
        self._growing = self._following = False

    async def start(self) -> None:
        if await self._read() is not None:
            self._follow()

    async def send(self, message: LinkMessage) -> None:
        if self._following and isinstance(message, Speed):
            # Nothing comes sooner than it happens.
            return
        if isinstance(message, Seek) and self._growing and message.t_ns >= self._newest_ns:
            if not self._following:
                self._follow()
            self._changed.set()
            return
        if isinstance(message, Pause | Seek):
            self._following = False
        await super().send(message)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await super().close()
        await asyncio.to_thread(self._followed.close)

    def playback(self) -> Playback | None:
        playback = super().playback()
        if playback is None or not self._growing:
            return playback
        state = "following" if self._following else playback.state
        return msgspec.structs.replace(playback, state=state, growing=True)

    def now(self, monotonic_s: float) -> float:
        """The recorded time; while it follows also if nothing is said, so that figures age."""
        return self._clock.now_ns() / _NS if self._following else super().now(monotonic_s)

    @property
    def _newest_ns(self) -> int:
        return self._followed.recording.duration_ns

    async def _read(self) -> Recording | None:
        self._following = False
        recording = await super()._read()
        if self._watching is None and recording is not None and self._followed.growing:
            self._growing = True
            self._watching = asyncio.create_task(self._watch())
        return recording

    def _load(self) -> Recording:
        self._followed.read_on()
        return self._followed.recording

    def _follow(self) -> None:
        self._jump_to(self._newest_ns)
        self._clock.run_at(1.0)
        self._clock.resume()
        self._following = True

    async def _at_end(self) -> None:
        if not self._growing:
            self._following = False
            await super()._at_end()
            return
        if not self._following and not self._clock.paused:
            self._clock.run_at(1.0)
            self._following = True
        await self._changed.wait()

    async def _due(self, t_ns: int) -> bool:
        if self._following:
            self._clock.set(t_ns)
            return True
        return await super()._due(t_ns)

    async def _watch(self) -> None:
        try:
            await self._read_on()
            findings = self._followed.recording.findings
            how = await asyncio.to_thread(self._followed.ending)
            if not findings and how in _ENDINGS:
                findings = (Finding("recording_cut", _ENDINGS[how]),)
            self._waiting.append(FileHealth(findings) if findings else Log("info", _COMPLETE))
        except DecodescopeError as error:
            self._following = False
            self._broken(error)
        self._growing = False
        self._changed.set()

    async def _read_on(self) -> None:
        followed, events = self._followed, 0
        while followed.growing:
            changed = await asyncio.to_thread(followed.read_on)
            if len(followed.recording.events) != events:
                events = len(followed.recording.events)
                self._marks = followed.recording.marks()
            if changed:
                self._changed.set()
            if followed.growing:
                await asyncio.sleep(POLL_S)
