"""Reads and analyses the files of several ranks, in as many processes as there are cores.

A process writes one frame for each of its files to standard output: 8 bytes of length, then a
pickle of (place of the file in the list, `ReadRank` or its error). Its standard input is a pipe
with one frame: what is given beside the files. The end of that pipe is the end of the process that
started this one, and ends this one too.
"""

import contextlib
import json
import os
import pickle
import selectors
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import BinaryIO

from decodescope.analyzer.errors import DecodescopeError, known_error, process_end
from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.reports.analysis import analyze
from decodescope.analyzer.reports.user_facts import NOTHING, Given
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Trace

# Below this a process takes longer to start than to read.
_WORTH_BYTES = 4 << 20
# Each holds a file of its own in memory.
_MAX_PROCESSES = 4
_PIECE_BYTES = 1 << 20
# The process imports from where this one does, never from the folder it runs in, which may hold
# files of strangers.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from decodescope.analyzer.reports.rank_reading import main; main(sys.argv[2:])"
)
# What one process reads: the places of its files.
_Share = list[int]
_Process = subprocess.Popen[bytes]

LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, eq=False)
class ReadRank:
    """One file of a run, read and analysed on its own."""

    trace: Trace
    report: Report
    steps: Steps


def read_ranks(paths: Sequence[str], given: Given = NOTHING) -> list[ReadRank]:
    """Each file read and analysed, in the order of `paths`; `given` counts for each.

    Large files are read by processes of their own, pipes by this one. An error, and an interruption
    of this process, kills these processes; they also end when this one does.

    Raises:
        TraceError: a file is not a trace; of several, the first in `paths` that was read.
        DecodescopeError: a process ended before its files were read.
    """
    shares = _shares(paths)
    read: dict[int, ReadRank] = {}
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(paths, share)) for share in shares]
        for process in processes:
            _say(process, given)
        elsewhere = {place for share in shares for place in share}
        for place, path in enumerate(paths):
            if place not in elsewhere:
                read[place] = read_rank(path, given)
        for place, result in _results(list(zip(processes, shares, strict=True)), paths):
            if isinstance(result, DecodescopeError):
                raise result
            read[place] = result
    return [read[place] for place in range(len(paths))]


def _shares(paths: Sequence[str]) -> list[_Share]:
    """The files of each process, about equally many bytes; none where processes do not pay."""
    sizes = {place: size for place, path in enumerate(paths) if (size := _file_bytes(path))}
    count = min(_cores(), _MAX_PROCESSES, len(sizes))
    if count < 2 or sum(sizes.values()) < _WORTH_BYTES or not sys.executable:
        return []
    shares: list[_Share] = [[] for _ in range(count)]
    loads = [0] * count
    for place in sorted(sizes, key=lambda place: (-sizes[place], place)):
        least = loads.index(min(loads))
        shares[least].append(place)
        loads[least] += sizes[place]
    return [sorted(share) for share in shares]


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _file_bytes(path: str) -> int:
    """The size of a plain file, 0 for what only this process can read."""
    # A name in /dev or /proc means another file in another process.
    if path == "-" or os.path.abspath(path).startswith(("/dev/", "/proc/")):
        return 0
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _started(paths: Sequence[str], share: _Share) -> AbstractContextManager[_Process]:
    named = [text for place in share for text in (str(place), paths[place])]
    return running(
        [sys.executable, "-c", _START, json.dumps(sys.path), *named],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in a terminal goes to this process only, which then ends them.
        process_group=0,
    )


def _say(process: _Process, given: Given) -> None:
    """Send what is given beside the files, and leave the pipe open."""
    assert process.stdin is not None
    try:
        process.stdin.write(framed(given))
        process.stdin.flush()
    except BrokenPipeError:  # it ended; its exit status says why
        # What is left would be sent at the end of the process, and fail again.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _results(
    processes: Sequence[tuple[_Process, _Share]], paths: Sequence[str]
) -> Iterator[tuple[int, ReadRank | DecodescopeError]]:
    """What the processes send, as it arrives: the place of a file, and what was read or the error.

    Raises:
        DecodescopeError: a process ended early.
    """
    with selectors.DefaultSelector() as selector:
        for process, share in processes:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, (process, share, bytearray()))
        while selector.get_map():
            for key, _ in selector.select():
                process, share, received = key.data
                piece = os.read(key.fd, _PIECE_BYTES)
                received += piece
                while (frame := _taken(received)) is not None:
                    place, result = pickle.loads(frame)
                    share.remove(place)
                    yield place, result
                if not piece:
                    selector.unregister(key.fileobj)
                    if share:
                        end = process_end(process.wait())
                        raise DecodescopeError(
                            f"{paths[share[0]]}: the process that read it {end}; "
                            "try again with more memory free, or fewer files at once"
                        )


def _taken(received: bytearray) -> bytearray | None:
    """The first whole frame, which is removed from `received`; None if there is none yet."""
    length = int.from_bytes(received[:LENGTH_BYTES], "little")
    if len(received) < LENGTH_BYTES + length or not length:
        return None
    frame = received[LENGTH_BYTES : LENGTH_BYTES + length]
    del received[: LENGTH_BYTES + length]
    return frame


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
            result: ReadRank | DecodescopeError = read_rank(path, given)
        except Exception as error:
            result = known_error(error)
        try:
            _send(output, place, result)
        except BrokenPipeError:
            # Closing the file would write what is left.
            os._exit(1)


def _send(output: BinaryIO, place: int, result: ReadRank | DecodescopeError) -> None:
    output.write(framed((place, result)))
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
