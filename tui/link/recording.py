"""Records the events of a link: `--record FILE`."""

import asyncio

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.attach_messages import WindowTaken
from decodescope.analyzer.protocol.messages import Bye, Failure, TraceReady
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.base import LinkEvent, WorkerDied


class Recorder:
    """Appends events to `writer`, which whoever made it closes.

    Whoever plays it must know that the worker died: that is recorded as a fatal `Failure`, unless
    the worker gave one or said goodbye. If it can no longer be written (a full disk), the session
    continues without a recording.
    """

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer: RecordingWriter | None = writer
        self._ended = False

    @property
    def records(self) -> bool:
        return self._writer is not None

    async def record(self, event: LinkEvent) -> Failure | None:
        """Record `event`; returns why the recording ends here, None while it goes on."""
        if isinstance(event, WorkerDied) and not self._ended:
            event = Failure(event.describe(), event.exit_code, fatal=True)
        if self._writer is None or not isinstance(event, RecordedMessage):
            return None
        self._ended = isinstance(event, Bye) or (isinstance(event, Failure) and event.fatal)
        try:
            if isinstance(event, TraceReady | WindowTaken):
                await asyncio.to_thread(self._writer.write, event)
            else:
                self._writer.write(event)
        except DecodescopeError as error:
            self._writer = None
            return Failure(str(error), error.exit_code, fatal=False)
        return None
