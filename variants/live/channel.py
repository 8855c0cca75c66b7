"""The worker's end of the control socket; it never blocks while the model decodes."""

import select
import socket
import time

from decodescope.analyzer.protocol.messages import (
    HEARTBEAT_S,
    AppMessage,
    FrameDecoder,
    Heartbeat,
    Stats,
    WorkerMessage,
    encode_frame,
)

_RECEIVE_BYTES = 65536


class ChannelClosed(Exception):
    """The app has closed its end."""


class Channel:
    """Sends `WorkerMessage`s to the app and receives its `AppMessage`s.

    Control messages are queued and never dropped. A `Stats` is dropped and counted if the socket
    cannot take any of it at once; the rest of a partly sent one goes out before anything else.

    Raises:
        ChannelClosed: by every method but `flush`, if the app is gone.
    """

    def __init__(self, control: socket.socket) -> None:
        control.setblocking(False)
        self._socket = control
        self._outgoing = bytearray()
        self._decoder = FrameDecoder(AppMessage)
        self.dropped = 0

    def send(self, message: WorkerMessage) -> None:
        """Queue a control message and send as much as the socket takes."""
        self._outgoing += encode_frame(message)
        self._flush_some()

    def send_stats(self, stats: Stats) -> bool:
        """Whether the socket takes `stats` now; otherwise they are counted as dropped."""
        self._flush_some()
        if not self._outgoing:
            frame = encode_frame(stats)
            sent = self._send(frame)
            if sent:
                self._outgoing += frame[sent:]
                return True
        self.dropped += 1
        return False

    def receive(self) -> list[AppMessage]:
        """The complete messages that have arrived; never waits.

        Raises:
            InputError: the app sent something that is not a message.
        """
        self._flush_some()
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError as error:
            raise ChannelClosed from error
        if not data:
            raise ChannelClosed
        return self._decoder.feed(data)  # type: ignore[return-value]

    def wait(self) -> list[AppMessage]:
        """Sleep until the app sends a message. Queued messages are still sent, and the app gets a
        `Heartbeat` every `HEARTBEAT_S`, so that it can tell a pause from a hung process."""
        while not (messages := self.wait_once()):
            pass
        return messages

    def wait_once(self) -> list[AppMessage]:
        """As `wait`, but for at most `HEARTBEAT_S`."""
        writers = [self._socket] if self._outgoing else []
        readable, writable, _ = select.select([self._socket], writers, [], HEARTBEAT_S)
        if readable:
            return self.receive()
        if writable:
            self._flush_some()
        elif not self._outgoing:
            self.send(Heartbeat())
        return []

    def flush(self, timeout_s: float) -> None:
        """Send queued messages for at most `timeout_s`; a closed channel is ignored."""
        deadline = time.monotonic() + timeout_s
        try:
            while self._outgoing and (left := deadline - time.monotonic()) > 0:
                select.select([], [self._socket], [], left)
                self._flush_some()
        except ChannelClosed:
            self._outgoing.clear()

    def _flush_some(self) -> None:
        while self._outgoing:
            sent = self._send(self._outgoing)
            if not sent:
                return
            del self._outgoing[:sent]

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise ChannelClosed from error
