"""Opens any trace file that decodescope reads. A new format is one more row of `FORMATS`.

The readers of other formats than Kineto's are imported when a file begins as theirs does.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import msgspec

from decodescope.analyzer.readers.byte_source import ByteSource, open_source
from decodescope.analyzer.readers.kineto.reader import read_kineto, read_kineto_bytes
from decodescope.analyzer.readers.not_traces import is_no_trace, refuse
from decodescope.analyzer.recordings.frames import MAGIC
from decodescope.analyzer.recordings.recording import read_recording, recording_in
from decodescope.analyzer.trace import Trace

# Enough for the head of a compressed file.
_BEGINNING_BYTES = 1 << 16
_SQLITE_MAGIC = b"SQLite format 3\x00"
_NSYS_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_ROCPROF_HEAD = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')
_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[{\]]|[\[{]\s*\Z)")


def load(path: Path | str, progress: Callable[[float], None] | None = None) -> Trace:
    """Read a trace of Kineto (JSON), Nsight Systems (SQLite) or rocprofv3 (JSON), or a recording.

    `path` may be a file, a pipe, or "-" for the standard input; any of them may be gzip. The first
    of `FORMATS` that recognises what it begins with reads it. `progress` is called with the share
    of a file that was read, except of SQLite, which is read in no order. Raises `TraceError` naming
    the file, what is wrong with it and what to do.
    """
    with open_source(str(path), progress) as source:
        return next(read for _, recognises, read in FORMATS if recognises(source))(source)


def format_of(path: Path) -> str:
    """The name of the format in `FORMATS` that the file begins as, "" for what is no trace.

    Raises:
        OSError: the file cannot be read.
        TraceError: it is no valid gzip.
    """
    with path.open("rb") as file:
        source = ByteSource(BytesIO(file.read(_BEGINNING_BYTES)), str(path), file=path)
    name = next(name for name, recognises, _ in FORMATS if recognises(source))
    return "" if name == "kineto" and not _JSON.match(source.head) else name


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


def _read_nsys(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.nsys.reader import read_nsys

    return read_nsys(source)


def _refuse_nsys_report(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.nsys.reader import refuse_nsys_report

    return refuse_nsys_report(source)


def _read_rocprof(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.rocprof.reader import read_rocprof

    return read_rocprof(source)


_Recognises = Callable[[ByteSource], bool]
# The name of a format ("" for what is no trace), whether a source has it, and what reads it.
FORMATS: tuple[tuple[str, _Recognises, Callable[[ByteSource], Trace]], ...] = (
    ("nsys", lambda source: source.head.startswith(_SQLITE_MAGIC), _read_nsys),
    ("", lambda source: source.path.endswith(_NSYS_REPORT_SUFFIXES), _refuse_nsys_report),
    ("recording", lambda source: source.head.startswith(MAGIC), _read_recorded_window),
    ("rocprof", lambda source: bool(_ROCPROF_HEAD.match(source.head)), _read_rocprof),
    ("", is_no_trace, refuse),
    ("kineto", lambda source: True, read_kineto),
)
