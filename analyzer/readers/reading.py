"""Opens any trace file that decodescope reads. A new format is one more row of `FORMATS`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import open_stream
from decodescope.analyzer.readers.kineto.reader import read_kineto, read_kineto_bytes
from decodescope.analyzer.readers.nsys.reader import (
    REPORT_SUFFIXES,
    SQLITE_MAGIC,
    read_nsys,
    refuse_nsys_report,
)
from decodescope.analyzer.recordings.recording import MAGIC, read_recording
from decodescope.analyzer.trace import Trace

_HEAD_BYTES = 16


def load(path: Path | str) -> Trace:
    """Read a Kineto trace (.json, .json.gz), an Nsight Systems export (.sqlite) or a recording.

    The first of `FORMATS` that recognises the file reads it. Raises `TraceError` naming the file,
    what is wrong with it and what to do.
    """
    path = str(path)
    with open_stream(path) as stream:
        try:
            head = stream.read(_HEAD_BYTES)
        except OSError as error:
            raise TraceError(f"{path}: reading failed ({error}); check the file") from error
    return next(read for recognises, read in FORMATS if recognises(path, head))(path)


def read_recorded_window(path: Path | str) -> Trace:
    """The last captured window of the recording at `path`; its source format is "recording".

    Raises:
        TraceError: as `read_recording`; there is no window, or the window is not a trace.
    """
    recording = read_recording(path)
    trace = read_kineto_bytes(recording.last_trace(), str(path))
    source = msgspec.structs.replace(trace.source, format="recording")
    return replace(trace, source=source, findings=(*recording.findings, *trace.findings))


# Whether a file (its path and first 16 bytes) has a format, and what reads it.
FORMATS: tuple[tuple[Callable[[str, bytes], bool], Callable[[str], Trace]], ...] = (
    (lambda _, head: head == SQLITE_MAGIC, read_nsys),
    (lambda path, _: path.endswith(REPORT_SUFFIXES), refuse_nsys_report),
    (lambda _, head: head.startswith(MAGIC), read_recorded_window),
    (lambda _, head: True, read_kineto),
)
