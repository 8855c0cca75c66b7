"""The app's end of the conversation with a worker, whatever is at the other end.

The app receives a `Link` as an argument: `tui.worker_link.WorkerLink` runs a real worker process,
`tui.replay_link.ReplayLink` plays a recording with its own timing, and
`tui.recording_link.RecordingLink` writes down what another link says while passing it on.
Tests pass a fake.
"""

from typing import Protocol

from msgspec import Struct

from decodescope.analyzer.protocol import AppMessage, WorkerMessage

LOG_TAIL_LINES = 20


class WorkerDied(Struct, frozen=True, tag="died"):
    """The worker process is gone: how it ended, and the last lines it logged.

    Exactly one of `exit_code` and `signal` ("SIGKILL") is set. It follows a `Bye` as well as a
    crash; after it the link is silent until `restart()`.
    """

    exit_code: int | None
    signal: str | None
    log_tail: tuple[str, ...]


LinkEvent = WorkerMessage | WorkerDied


class Link(Protocol):
    """Where a worker's messages come from. No method raises for what happens to the worker.

    A file named by `TraceReady` lives until a few windows later: read it soon, and treat its
    absence as an old message.
    """

    @property
    def exit_code(self) -> int | None:
        """How the worker ended (negative: the signal's number), None while it lives."""
        ...

    async def start(self) -> None:
        """Begin; returns at once, `Progress` and `Hello` arrive through `receive`.

        Raises:
            DecodescopeError: there is no beginning (no process can be started).
        """
        ...

    async def receive(self) -> LinkEvent | None:
        """The next event, None once the link is closed. Of `Stats` only the latest is given."""
        ...

    async def send(self, message: AppMessage) -> None:
        """Hand a message to the worker; silently lost when there is none any more."""
        ...

    async def restart(self) -> None:
        """Begin anew after the worker died (or instead of it); a replay starts over."""
        ...

    async def close(self) -> None:
        """End the worker and remove what the link made; a waiting `receive` returns None."""
        ...

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> list[str]:
        """The last lines of the worker's log."""
        ...
