"""How a command ends: its exit code, and one line on stderr for an error.

0 done, 1 a regression gate failed, 2 bad usage or input, 3 a missing requirement, 70 an error that
nobody foresaw, 129, 130 or 143 ended by SIGHUP, SIGINT or SIGTERM, 141 the reader of stdout is
gone. As in a shell, the last ones are 128 + the number of the signal.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import rich_click as click
from click.exceptions import Exit

from decodescope.analyzer.errors import DecodescopeError, InputError, InternalError, known_error
from decodescope.cli.output import say
from decodescope.cli.streams import ReaderGone, standard_streams

_INTERRUPTED, _READER_GONE = 130, 141


def end_with(command: Callable[[], int | None], debug: bool | None = None) -> NoReturn:
    """Run `command` and end the process with its exit code, or with that of its error. If a signal
    interrupted it, that one counts, also if the command could still write what it had.

    `debug` is whether the traceback of an error precedes its line. A program without that option
    leaves it None: then an error that nobody foresaw has one.
    """
    with interruptible() as interruption, standard_streams():
        code = _code(command, debug)
    if interruption.number is not None:
        # All that had to be ended or removed is; taking torch apart would take seconds more.
        os._exit(128 + interruption.number)
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


@dataclass(slots=True)
class EndingSignal:
    """The signal that interrupted a command, None so far."""

    number: int | None = None


@contextmanager
def interruptible() -> Iterator[EndingSignal]:
    """Turns the first ending signal into `KeyboardInterrupt`, except those that this process was
    started to ignore (`nohup`)."""
    caught = {number: signal.getsignal(number) for number in ENDING}
    caught = {
        number: handler for number, handler in caught.items() if handler is not signal.SIG_IGN
    }
    interruption = EndingSignal()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interruption.number = number
        for caught_number in caught:
            signal.signal(caught_number, lambda number, frame: None)
        time.sleep(_ONE_SIGNAL_S)
        for caught_number in caught:
            signal.signal(caught_number, signal.SIG_DFL)
        raise KeyboardInterrupt

    for number in caught:
        signal.signal(number, interrupt)
    yield interruption
    if interruption.number is None:
        for number, handler in caught.items():
            signal.signal(number, handler)
