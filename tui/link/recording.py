"""Records the events of a link while passing them on: `--record FILE`."""

import asyncio

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol import Failure, Settings, TraceReady, WorkerMessage
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.tui.link.base import Link, LinkEvent, LinkMessage


class RecordingLink(Link):
    """Delivers the events of `link` unchanged and appends them to `writer`.

    The recording gets its final name on `close()`. If it can no longer be written (a full disk),
    one `Failure` reports it and the session continues without a recording.
    """

    def __init__(self, link: Link, writer: RecordingWriter) -> None:
        self._link = link
        self._writer: RecordingWriter | None = writer
        self._warning: Failure | None = None

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
        if self._writer is not None and isinstance(event, WorkerMessage):
            try:
                if isinstance(event, TraceReady):
                    await asyncio.to_thread(self._writer.write, event)
                else:
                    self._writer.write(event)
            except DecodescopeError as error:
                self._give_up(error)
        return event

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
