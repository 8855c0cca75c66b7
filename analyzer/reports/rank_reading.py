"""Reads and analyses the files of several ranks, in as many processes as there are cores.

A process writes one pickle for each of its files, in their order, to standard output: a `ReadRank`
or its error. Its standard input is a pipe with one pickle: the facts beside the files. The end
of that pipe is the end of the process that started this one, and ends this one too.
"""

import contextlib
import json
import os
import pickle
import stat
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from queue import SimpleQueue

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
# The process imports from where this one does, never from the folder it runs in, which may hold
# files of strangers.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from decodescope.analyzer.reports.rank_reading import main; main(sys.argv[2:])"
)
# The places of the files that one process reads.
_Share = list[int]
_Process = subprocess.Popen[bytes]


@dataclass(frozen=True, slots=True, eq=False)
class ReadRank:
    """One file of a run, read and analysed on its own."""

    trace: Trace
    report: Report
    steps: Steps


def read_ranks(paths: Sequence[str], facts: Given = NOTHING) -> list[ReadRank]:
    """Each file read and analysed, in the order of `paths`; the `facts` hold for each.

    Large files are read by processes of their own, pipes by this one. An error, and an interruption
    of this process, kills these processes; they also end when this one does.

    Raises:
        TraceError: a file is not a trace; of several, the first in `paths` that was read.
        DecodescopeError: a process ended before its files were read.
    """
    read: dict[int, ReadRank] = {}
    with closing(read_each(paths, facts)) as results:
        for place, result in results:
            if isinstance(result, Exception):
                raise result
            read[place] = result
    return [read[place] for place in range(len(paths))]


def read_each(
    paths: Sequence[str], facts: Given = NOTHING
) -> Generator[tuple[int, ReadRank | Exception]]:
    """The place of each file in `paths`, and what was read or why it cannot be, as they are done;
    otherwise as `read_ranks`. Closing it kills the processes."""
    shares = _shares(paths)
    with ExitStack() as stack:
        processes = [stack.enter_context(_started(paths, share)) for share in shares]
        received: SimpleQueue[tuple[int, ReadRank | Exception]] = SimpleQueue()
        for process, share in zip(processes, shares, strict=True):
            _say(process, facts)
            threading.Thread(
                target=_receive, args=(process, share, paths, received), daemon=True
            ).start()
        elsewhere = {place for share in shares for place in share}
        for place, path in enumerate(paths):
            if place not in elsewhere:
                yield place, _read_or_error(path, facts)
        for _ in elsewhere:
            yield received.get()


def _read_or_error(path: str, facts: Given) -> ReadRank | Exception:
    try:
        return read_rank(path, facts)
    except Exception as error:  # raised, or said, by who asked
        return error


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
    return running(
        [
            sys.executable,
            "-P",
            "-c",
            _START,
            json.dumps(sys.path),
            *(paths[place] for place in share),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in a terminal goes to this process only, which then ends them.
        process_group=0,
    )


def _say(process: _Process, facts: Given) -> None:
    """Send the facts beside the files, and leave the pipe open."""
    assert process.stdin is not None
    try:
        pickle.dump(facts, process.stdin, protocol=5)
        process.stdin.flush()
    except BrokenPipeError:  # it ended; its exit status says why
        # What is left would be sent at the end of the process, and fail again.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _receive(
    process: _Process,
    share: _Share,
    paths: Sequence[str],
    received: SimpleQueue[tuple[int, ReadRank | Exception]],
) -> None:
    """Put the messages of a process into a queue as they arrive: the place of a file, and its
    `ReadRank` or error. A process that ends early is an error too."""
    assert process.stdout is not None
    for place in share:
        try:
            result = pickle.load(process.stdout)
        except (EOFError, pickle.UnpicklingError, ValueError):  # it ended, or the pipe was closed
            result = DecodescopeError(
                f"{paths[place]}: the process that read it {process_end(process.wait())}; "
                "try again with more memory free, or fewer files at once"
            )
        except Exception as error:  # raised where the queue is read
            result = error
        received.put((place, result))


def read_rank(path: str, facts: Given = NOTHING) -> ReadRank:
    """Read and analyse one file.

    Raises:
        TraceError: the file is not a trace.
        InputError: one of the `facts` is not what it should be.
    """
    analysis = analyze(load(path), facts)
    return ReadRank(analysis.trace, analysis.report, analysis.steps)


def main(paths: Sequence[str]) -> None:
    """Send a pickle for each file, in their order."""
    try:
        facts: Given = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):  # its parent has ended
        os._exit(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    output = os.fdopen(os.dup(1), "wb")
    # Whatever a library prints must not get between the pickles.
    os.dup2(2, 1)
    for path in paths:
        try:
            result: ReadRank | DecodescopeError = read_rank(path, facts)
        except Exception as error:
            result = known_error(error)
        try:
            pickle.dump(result, output, protocol=5)
            output.flush()
        except BrokenPipeError:
            # Closing the file would write what is left.
            os._exit(1)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
