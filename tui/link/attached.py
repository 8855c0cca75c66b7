"""The link to something that runs already, through a door of `decodescope.attach`."""

import asyncio
import threading
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from decodescope.analyzer.errors import known_error
from decodescope.analyzer.protocol.attach_messages import WindowFailed, WindowTaken
from decodescope.analyzer.protocol.messages import CaptureTrace, Progress
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import Door, WindowPlan
from decodescope.attach.taking import take_window
from decodescope.attach.watching import POLL_S, taken, target_of, watch
from decodescope.tui.link.base import Link, LinkEvent, LinkMessage

# A request may hang; a window is ended first, so that the target does not go on recording.
_LEAVE_S, _LEAVE_WINDOW_S = 1.0, 10.0


class AttachLink(Link):
    """Asks `door` for the target's metrics every `poll_s`, less often while it does not answer, and
    for a window of `plan` at each `CaptureTrace`, one at a time. After a silence or a restart, the
    door looks again at what the target is.

    Metrics and windows have a thread each. The threads are daemons: a target that hangs holds up
    neither the other thread nor the end of the app. `close` closes the door, which ends a window.
    """

    def __init__(self, door: Door, plan: WindowPlan, poll_s: float = POLL_S) -> None:
        self._door, self._plan, self._poll_s = door, plan, poll_s
        self._events: asyncio.Queue[LinkEvent | None] = asyncio.Queue()
        self._closing = threading.Event()
        self._metrics: Future[None] | None = None
        self._window: Future[None] | None = None
        self._taking = False

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events.put_nowait(target_of(self._door, self._plan))
        watching = partial(
            watch, self._door, self._plan, self._deliver, self._closing, self._poll_s
        )
        self._metrics = in_daemon_thread(watching)

    async def receive(self) -> LinkEvent | None:
        event = await self._events.get()
        if isinstance(event, WindowTaken | WindowFailed):
            self._taking = False
        return event

    async def send(self, message: LinkMessage) -> None:
        if isinstance(message, CaptureTrace) and not self._taking:
            self._taking = True
            self._events.put_nowait(Progress("opens a window"))
            self._window = in_daemon_thread(self._take)

    async def close(self) -> None:
        """Leave the target; a second call has nothing left to wait for."""
        if self._closing.is_set():
            return
        self._closing.set()
        await asyncio.to_thread(self._leave)
        self._events.put_nowait(None)

    def _leave(self) -> None:
        self._door.close()
        if self._window is not None:
            wait([self._window], _LEAVE_WINDOW_S)
        if self._metrics is not None:
            wait([self._metrics], _LEAVE_S)

    def _deliver(self, event: LinkEvent) -> None:
        """Deliver an event of a thread, unless the app has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    def _take(self) -> None:
        try:
            window = take_window(self._door, self._plan, lambda text: self._deliver(Progress(text)))
        except Exception as error:
            self._deliver(WindowFailed(str(known_error(error))))
        else:
            self._deliver(taken(window))
