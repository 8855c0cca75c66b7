"""The app's end of the conversation with a worker: `Link`, of which there is one for each kind of
source in this folder, and the events it delivers. Tests pass a fake."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.errors import process_end
from decodescope.analyzer.protocol.attach_messages import AttachMessage
from decodescope.analyzer.protocol.messages import AppMessage, Settings, WorkerMessage
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.recordings.recording import RecordingMark
from decodescope.analyzer.schema.report import Finding

NEWEST_NS = 1 << 62


class WorkerDied(Struct, frozen=True, tag="died"):
    """The worker process ended: how, and the last lines it logged.

    `exit_code` is negative if a signal killed it. The event follows a `Bye` as well as a crash;
    after it the link is silent until `restart()`.
    """

    exit_code: int
    log_tail: tuple[str, ...]

    def describe(self) -> str:
        return f"The worker {process_end(self.exit_code)}"


class FileHealth(Struct, frozen=True, tag="health"):
    """The findings about the recording that is about to be played."""

    findings: tuple[Finding, ...]


class Jumped(Struct, frozen=True, tag="jumped"):
    """A replay went to `t_ns`: `past` is what was reported until then, each message with its time,
    oldest first. It replaces everything that was reported before."""

    t_ns: int
    past: tuple[tuple[int, RecordedMessage], ...]


class Seek(Struct, frozen=True, tag="seek"):
    """Go to `t_ns` after the recording began; `NEWEST_NS` is its end, wherever that is by then."""

    t_ns: int


class Speed(Struct, frozen=True, tag="speed"):
    """Play `factor` times as fast as it was recorded; infinity waits for nothing."""

    factor: float


class Playback(Struct, frozen=True):
    """Where a replay is, how fast it runs, and what it could jump to; times are since the
    recording began. A recording that is `growing` is still being written; while it is followed,
    every new message is shown at once. It has `arrived` when the last jump was delivered."""

    position_ns: int
    duration_ns: int
    speed: float
    state: Literal["following", "playing", "paused", "ended"]
    marks: tuple[RecordingMark, ...]
    growing: bool = False
    arrived: bool = True


LinkEvent = WorkerMessage | WorkerDied | FileHealth | Jumped | AttachMessage
LinkMessage = AppMessage | Seek | Speed


class Link:
    """A source of worker messages; subclasses implement `receive` and `close`.

    No method raises an error because of what the worker does. A file that a worker names by
    `TraceReady` is deleted a few windows later: read it soon, and treat a missing file as an old
    message.
    """

    @property
    def settings(self) -> Settings | None:
        """The settings that run, or will after a restart, as `send(ChangeSettings)` changes them;
        None if there are none."""
        return None

    async def start(self) -> None:
        """Begin; returns at once, `Progress` and `Hello` arrive through `receive`.

        Raises:
            DecodescopeError: it cannot begin (no process can be started).
        """

    async def receive(self) -> LinkEvent | None:
        """The next event, None once the link is closed. Only the latest `Stats` is delivered."""
        raise NotImplementedError

    async def send(self, message: LinkMessage) -> None:
        """Send a message to the worker; silently dropped if there is no worker."""

    def playback(self) -> Playback | None:
        """Where a replay is; None if this is none, or it could not be read."""
        return None

    def printed(self) -> list[str]:
        """The lines that the process printed since the last call; of many, only the last ones."""
        return []

    def now(self, monotonic_s: float) -> float:
        """The time of this source in seconds, for ages and histories, at a monotonic time."""
        return monotonic_s

    async def end(self) -> None:
        """End the worker without a report of its death; `restart()` starts another one."""

    async def restart(self) -> None:
        """Replace the worker, dead or alive, with a new one; a replay starts over."""

    async def close(self) -> None:
        """End the worker and remove temporary files; a pending `receive` returns None."""
        raise NotImplementedError
