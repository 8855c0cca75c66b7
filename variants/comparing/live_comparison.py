"""A comparison for the app.

    python -m decodescope.variants.comparing.live_comparison SOCKET_FD CONFIG_JSON

It sends what it does and measures to the app at the other end of a socket pair. `Quit`, SIGTERM
and the end of the socket interrupt it as Ctrl-C interrupts `compare`: the run in progress ends, and
the complete rounds are compared.
"""

import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType

import msgspec
from msgspec import Struct

from decodescope.analyzer.comparing.comparison_messages import ComparisonConfig, ComparisonDone
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import Bye, FrameDecoder, Quit, encode_frame
from decodescope.variants.comparing.command import CompareRequest, compare_variants
from decodescope.variants.machine.child_process import end_with_parent, exit_now, failure_of

_RECEIVE_BYTES = 1 << 16


class _App:
    """The app's end of the conversation. Its `Quit`, which a thread waits for, and the first SIGINT
    or SIGTERM raise `KeyboardInterrupt`, but never inside a frame."""

    def __init__(self, control: socket.socket) -> None:
        self._socket = control
        self._asked = self._interrupted = self._sending = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        threading.Thread(target=self._listen, daemon=True).start()

    def tell(self, message: Struct) -> None:
        """Raises `OSError` if the app is gone."""
        self._sending = True
        try:
            self._socket.sendall(encode_frame(message))
        finally:
            self._sending = False
            self._interrupt()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._asked and not self._interrupted and not self._sending:
            self._interrupted = True
            raise KeyboardInterrupt

    def _listen(self) -> None:
        decoder = FrameDecoder(Quit)
        with suppress(OSError, InputError):
            while data := self._socket.recv(_RECEIVE_BYTES):
                if decoder.feed(data):
                    break
        os.kill(os.getpid(), signal.SIGINT)


def main(arguments: list[str]) -> int:
    control, config_json = arguments
    end_with_parent(int(control))
    app = _App(socket.socket(fileno=int(control)))
    config = msgspec.json.decode(config_json, type=ComparisonConfig)
    try:
        try:
            request = CompareRequest(config.config, config.variants, config.rounds, each_round=True)
            app.tell(ComparisonDone(compare_variants(request, app.tell)))
            app.tell(Bye("done"))
            return 0
        except KeyboardInterrupt:
            app.tell(Bye("cancelled"))
            return 0
        except Exception as error:  # ours, a device's, or a bug
            failure = failure_of(error)
            app.tell(failure)
            app.tell(Bye("failed"))
            return failure.exit_code
    except (OSError, KeyboardInterrupt):  # the app is gone, or asked a moment too late
        return 0


if __name__ == "__main__":
    exit_now(main(sys.argv[1:]))
