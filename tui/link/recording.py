"""Records the events of a link while passing them on: `--record FILE`."""

import asyncio

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.attach_messages import WindowTaken
from decodescope.analyzer.protocol.messages import Bye, Failure, Settings, TraceReady
from decodescope.analyzer.recordings.frames import RecordedMessage
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.base import Link, LinkEvent, LinkMessage, WorkerDied


class RecordingLink(Link):
    """Delivers the events of `link` unchanged and appends them to `writer`.

    Whoever plays it must know that the worker died: that is recorded as a fatal `Failure`, unless
    the worker gave one or said goodbye. The recording gets its final name on `close()`. If it can
    no longer be written (a full disk), one `Failure` reports it and the session continues without a
    recording.
    """

    def __init__(self, link: Link, writer: RecordingWriter) -> None:
        self._link = link
        self._writer: RecordingWriter | None = writer
        self._warning: Failure | None = None
        self._ended = False

    @property
    def settings(self) -> Settings | None:
        return self._link.settings

    @property
    def recording(self) -> bool:
        return self._writer is not None

    async def start(self) -> None:
        await self._link.start()

    async def receive(self) -> LinkEvent | None:
        if self._warning is not None:
            warning, self._warning = self._warning, None
            return warning
        event = await self._link.receive()
        if isinstance(event, WorkerDied) and not self._ended:
            await self._record(Failure(event.describe(), event.exit_code, fatal=True))
        elif isinstance(event, RecordedMessage):
            await self._record(event)
        return event

    async def _record(self, message: RecordedMessage) -> None:
        self._ended = isinstance(message, Bye) or (isinstance(message, Failure) and message.fatal)
        if self._writer is None:
            return
        try:
            if isinstance(message, TraceReady | WindowTaken):
                await asyncio.to_thread(self._writer.write, message)
            else:
                self._writer.write(message)
        except DecodescopeError as error:
            self._give_up(error)

    async def send(self, message: LinkMessage) -> None:
        await self._link.send(message)

    def printed(self) -> list[str]:
        return self._link.printed()

    async def end(self) -> None:
        await self._link.end()

    async def restart(self) -> None:
        await self._link.restart()

    async def close(self) -> None:
        await self._link.close()
        if self._writer is not None:
            try:
                self._writer.close()
            except DecodescopeError as error:
                self._give_up(error)

    def _give_up(self, error: DecodescopeError) -> None:
        self._writer = None
        self._warning = Failure(str(error), error.exit_code, fatal=False)
