"""A process that no interruption leaves behind, not even one that arrives while it starts."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


@contextmanager
def running(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """`command` for the length of a block: an exception kills it, with all of its session if it
    starts one, and the end waits for it.

    A `Popen` that an exception interrupts forgets the process that it has already started. So the
    handlers of signals are called once the process is known. `options` are those of `Popen`.

    Raises:
        OSError: `command` cannot be started.
    """
    handlers = _handlers()
    arrived: list[tuple[int, FrameType | None]] = []
    try:
        for number in handlers:
            signal.signal(number, lambda number, frame: arrived.append((number, frame)))
        process = subprocess.Popen(command, **options)
    except BaseException:
        _restore(handlers)
        raise
    with process:
        try:
            _restore(handlers)
            for number, frame in arrived[:1]:
                handlers[number](number, frame)
            yield process
        except BaseException:
            process.kill()
            if options.get("start_new_session"):
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise


def _handlers() -> dict[int, Handler]:
    """The handlers in Python of signals that end a command; only the main thread may change them,
    and only there they raise."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in ending}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _restore(handlers: Mapping[int, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
