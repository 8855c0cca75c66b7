"""The app's end of the conversation with a worker: `Link` and the events it delivers.

The app receives a `Link` as an argument: `link.worker.WorkerLink` runs a real worker process,
`link.replay.ReplayLink` plays a recording, and `link.recording.RecordingLink` records the events of
another link while passing them on. Tests pass a fake.
"""

from msgspec import Struct

from decodescope.analyzer.errors import process_end
from decodescope.analyzer.protocol import AppMessage, WorkerMessage


class WorkerDied(Struct, frozen=True, tag="died"):
    """The worker process ended: how, and the last lines it logged.

    `exit_code` is negative if a signal killed it. The event follows a `Bye` as well as a crash;
    after it the link is silent until `restart()`.
    """

    exit_code: int
    log_tail: tuple[str, ...]

    def describe(self) -> str:
        """How the worker ended, in words."""
        return f"The worker {process_end(self.exit_code)}"


LinkEvent = WorkerMessage | WorkerDied


class Link:
    """A source of worker messages; subclasses implement `receive` and `close`.

    No method raises an error because of what the worker does. A file named by
    `TraceReady` is deleted a few windows later: read it soon, and treat a missing file as an old
    message.
    """

    async def start(self) -> None:
        """Begin; returns at once, `Progress` and `Hello` arrive through `receive`.

        Raises:
            DecodescopeError: it cannot begin (no process can be started).
        """

    async def receive(self) -> LinkEvent | None:
        """The next event, None once the link is closed. Only the latest `Stats` is delivered."""
        raise NotImplementedError

    async def send(self, message: AppMessage) -> None:
        """Send a message to the worker; silently dropped if there is no worker."""

    async def restart(self) -> None:
        """Replace the worker, dead or alive, with a new one; a replay starts over."""

    async def close(self) -> None:
        """End the worker and remove temporary files; a pending `receive` returns None."""
        raise NotImplementedError
