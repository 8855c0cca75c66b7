"""Opens any trace file that decodescope reads. A new format is one more row of `FORMATS`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from decodescope.analyzer.readers.byte_source import ByteSource, open_source
from decodescope.analyzer.readers.kineto.reader import read_kineto, read_kineto_bytes
from decodescope.analyzer.readers.not_traces import is_no_trace, refuse
from decodescope.analyzer.readers.nsys.reader import (
    REPORT_SUFFIXES,
    SQLITE_MAGIC,
    read_nsys,
    refuse_nsys_report,
)
from decodescope.analyzer.readers.rocprof.document import HEAD
from decodescope.analyzer.readers.rocprof.reader import read_rocprof
from decodescope.analyzer.recordings.frames import MAGIC
from decodescope.analyzer.recordings.recording import read_recording, recording_in
from decodescope.analyzer.trace import Trace


def load(path: Path | str) -> Trace:
    """Read a trace of Kineto (JSON), Nsight Systems (SQLite) or rocprofv3 (JSON), or a recording.

    `path` may be a file, a pipe, or "-" for the standard input; any of them may be gzip. The first
    of `FORMATS` that recognises what it begins with reads it. Raises `TraceError` naming the file,
    what is wrong with it and what to do.
    """
    with open_source(str(path)) as source:
        return next(read for recognises, read in FORMATS if recognises(source))(source)


def _read_recorded_window(source: ByteSource) -> Trace:
    """The last captured window of a recording; its source format is "recording"."""
    if source.file is None:
        remedy = "save it to a file and name that"
        recording = recording_in(source.read_all(remedy), source.path)
    else:
        recording = read_recording(source.file)
    trace = read_kineto_bytes(recording.last_packed_trace(), source.path)
    shown = msgspec.structs.replace(trace.source, format="recording")
    return replace(trace, source=shown, findings=(*recording.findings, *trace.findings))


# Whether a source has a format, and what reads it.
FORMATS: tuple[tuple[Callable[[ByteSource], bool], Callable[[ByteSource], Trace]], ...] = (
    (lambda source: source.head.startswith(SQLITE_MAGIC), read_nsys),
    (lambda source: source.path.endswith(REPORT_SUFFIXES), refuse_nsys_report),
    (lambda source: source.head.startswith(MAGIC), _read_recorded_window),
    (lambda source: bool(HEAD.match(source.head)), read_rocprof),
    (is_no_trace, refuse),
    (lambda source: True, read_kineto),
)
