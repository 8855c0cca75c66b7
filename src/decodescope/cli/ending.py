"""How a command ends: its exit code, and one line on stderr for an error.

0 done, 1 a gate failed, 2 bad usage or input, 3 a missing requirement, 4 a strict gate could not
decide, 70 an error that nobody foresaw, 129, 130 or 143 ended by SIGHUP, SIGINT or SIGTERM, 141 the
reader of stdout is gone. As in a shell, the last ones are 128 + the number of the signal.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import NoReturn

import rich_click as click
from click.exceptions import Exit

from decodescope.analyzer.errors import DecodescopeError, InputError, InternalError, known_error
from decodescope.cli.output import say
from decodescope.cli.streams import ReaderGone, standard_streams

_INTERRUPTED, _READER_GONE = 130, 141


def end_with(
    command: Callable[[], int | None],
    debug: bool | None = None,
    ending: "Ending | None" = None,
) -> NoReturn:
    """Run `command` and end the process with its exit code, or with that of its error. If a signal
    interrupted it, that one counts, also if the command could still write what it had.

    `debug` is whether the traceback of an error precedes its line. A program without that option
    leaves it None: then an error that nobody foresaw has one. Without an `ending` there is nothing
    to finish after a signal.
    """
    ending = ending or Ending()
    with interruptible(ending), standard_streams():
        code = _code(command, debug)
    if ending.number is not None:
        # All that had to be ended or removed is; taking torch apart would take seconds more.
        os._exit(128 + ending.number)
    sys.exit(code)


def _code(command: Callable[[], int | None], debug: bool | None) -> int:
    try:
        try:
            return command() or 0
        finally:
            sys.stdout.flush()
    except Exit as end:
        return end.exit_code
    except ReaderGone:
        return _READER_GONE
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except Exception as error:
        return _reported(error, debug)


def _reported(error: Exception, debug: bool | None) -> int:
    if isinstance(error, click.ClickException):
        known: DecodescopeError = InputError(error.format_message())
    else:
        known = known_error(error)
    unforeseen = isinstance(known, InternalError)
    traced = unforeseen if debug is None else debug
    message = " ".join(str(known).split())
    if unforeseen:
        shown = "the traceback above" if traced else "the traceback that --debug shows"
        message += f"; this is a fault of decodescope: please report it with {shown}"
    if traced:
        traceback.print_exception(error)
    say(f"decodescope: {message}")
    return known.exit_code


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# `timeout` sends its signal twice, to the process and to its group; a second one that is meant as
# one comes later.
_ONE_SIGNAL_S = 0.1
# How long a command may take to end processes and to remove files after a signal. What a process
# leaves that is ended then, the next one removes; its own processes end with it.
_GRACE_S = 1.2
_LOOK_S = 0.1
# No signal of ours, ignored by default: it only makes the main thread look at the others.
_WAKING = signal.SIGURG


def _raise() -> None:
    raise KeyboardInterrupt


@dataclass(slots=True)
class Ending:
    """How a signal ends a command: the `number` of the signal that interrupted it, None so far.
    `finishing` is what the command does after that, however long it takes; "" if it has nothing
    to do but to clean up. `interrupt` is called in the main thread with the signal."""

    number: int | None = None
    finishing: str = ""
    interrupt: Callable[[], object] = _raise

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        """Run `main` in an event loop; a signal cancels it. An exception could come wherever the
        loop is, as in the start of a process, which would then be nobody's.

        Raises:
            KeyboardInterrupt: a signal ended it.
        """
        # Most commands have no loop.
        import asyncio

        async def cancellable() -> None:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self.interrupt = partial(loop.call_soon_threadsafe, task.cancel)
            await main()

        try:
            asyncio.run(cancellable())
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self.interrupt = _raise

    def end_soon(self, number: int) -> None:
        """End this process after `_GRACE_S`, whatever it is doing by then; but where it finishes
        something, say so."""
        threading.Thread(target=self._end, args=(number,), name="end", daemon=True).start()

    def _end(self, number: int) -> None:
        deadline_s = time.monotonic() + _GRACE_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left_s))
            if self.number is None and (main := threading.main_thread().ident) is not None:
                # The signal reached another thread, and the main thread waits for the system.
                signal.pthread_kill(main, _WAKING)
        if self.finishing:
            say(f"decodescope: {self.finishing}; another signal ends it at once")
        else:
            os._exit(128 + number)


def current_ending() -> Ending:
    """How a signal ends the command that runs."""
    context = click.get_current_context()
    assert context is not None
    return context.ensure_object(Ending)


@contextmanager
def interruptible(ending: Ending) -> Iterator[None]:
    """Lets the first ending signal interrupt the command, except those that this process was
    started to ignore (`nohup`), and ends the process if it has not ended soon after.

    Python calls a handler once the main thread runs Python again, which can be long after: while a
    library is loaded or compiles, and where another thread got the signal. A pipe has its number
    at once.
    """
    handlers = {number: signal.getsignal(number) for number in ENDING}
    caught = {
        number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN
    }

    def interrupt(number: int, frame: FrameType | None) -> None:
        ending.number = number
        for caught_number in caught:
            signal.signal(caught_number, lambda number, frame: None)
        time.sleep(_ONE_SIGNAL_S)
        for caught_number in caught:
            signal.signal(caught_number, signal.SIG_DFL)
        ending.interrupt()

    with _signals_seen(caught, ending.end_soon):
        for number in caught:
            signal.signal(number, interrupt)
        yield
    if ending.number is None:
        for number, handler in caught.items():
            signal.signal(number, handler)


@contextmanager
def _signals_seen(numbers: Container[int], seen: Callable[[int], None]) -> Iterator[None]:
    """For the length of a block, calls `seen` in a thread with the first signal of `numbers`."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)

    def watch() -> None:
        with open(read_end, "rb", buffering=0) as arrived:
            while number := arrived.read(1):
                if number[0] in numbers:
                    seen(number[0])
                    # Python complains of a later signal that finds the pipe closed.
                    arrived.readall()

    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    waking = signal.signal(_WAKING, lambda number, frame: None)
    threading.Thread(target=watch, name="signals", daemon=True).start()
    try:
        yield
    finally:
        signal.signal(_WAKING, waking)
        signal.set_wakeup_fd(before)
        os.close(write_end)
