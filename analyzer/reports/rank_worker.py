"""The process that reads and analyses some of the files of a run's ranks.

It writes one frame for each file to standard output: 8 bytes of length, then a pickle of (place of
the file in the list, `ReadRank` or its error). Its standard input is a pipe that says one thing, a
frame with what is given beside the files; the end of that pipe is the end of the process that
started this one, and ends this one too.
"""

import os
import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from decodescope.analyzer.errors import DecodescopeError, known_error
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.reports.given import NOTHING, Given
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Trace

LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class ReadRank:
    """One file of a run, read and analysed on its own."""

    trace: Trace
    report: Report
    steps: Steps


def read_rank(path: str, given: Given = NOTHING) -> ReadRank:
    """Read and analyse one file.

    Raises:
        TraceError: the file is not a trace.
        InputError: what is `given` is not what it should be.
    """
    analysis = analyze(load(path), given)
    return ReadRank(analysis.trace, analysis.report, analysis.steps)


def main(arguments: Sequence[str]) -> None:
    """Send a frame for each file; `arguments` are its place and its path, alternately."""
    with os.fdopen(os.dup(0), "rb", buffering=0) as pipe:
        length = int.from_bytes(_exactly(pipe, LENGTH_BYTES), "little")
        given: Given = pickle.loads(_exactly(pipe, length))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not get between the frames.
    os.dup2(2, 1)
    for place, path in zip(map(int, arguments[::2]), arguments[1::2], strict=True):
        try:
            found: ReadRank | DecodescopeError = read_rank(path, given)
        except Exception as error:
            found = known_error(error)
        try:
            _send(output, place, found)
        except BrokenPipeError:
            # Closing the file would write what is left.
            os._exit(1)


def _send(output: BinaryIO, place: int, found: ReadRank | DecodescopeError) -> None:
    output.write(framed((place, found)))
    output.flush()


def framed(value: object) -> bytes:
    """A frame: 8 bytes of length, then the value's pickle."""
    frame = pickle.dumps(value, protocol=5)
    return len(frame).to_bytes(LENGTH_BYTES, "little") + frame


def _exactly(pipe: BinaryIO, length: int) -> bytes:
    """The next `length` bytes; the process ends if its parent ends before."""
    received = bytearray()
    while len(received) < length:
        piece = pipe.read(length - len(received))
        if not piece:
            os._exit(1)
        received += piece
    return bytes(received)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
