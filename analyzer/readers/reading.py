"""Opens any trace file that decodescope reads. A new format is one more row of `FORMATS`.

The readers of other formats than Kineto's are imported when a file begins as theirs does. Files
that hold no trace are named by their first bytes, and files of the ranks of one run are recognised.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource, open_source
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto, read_kineto_bytes
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.recordings.frames import MAGIC
from decodescope.analyzer.recordings.recording import read_recording, recording_in
from decodescope.analyzer.schema.report import Finding
from decodescope.analyzer.trace import Trace

_PIPE_IT = "unpack it: {} FILE | decodescope analyze -"
_NOT_TRACES = tuple(
    (re.compile(pattern, re.DOTALL), kind, remedy)
    for pattern, kind, remedy in (
        (
            rb'\s*\{\s*"schema"\s*:\s*"[^"]*".*"nodes"\s*:\s*\[',
            "a PyTorch execution trace (Chakra), which has operators but no times and no GPU ops",
            "record one with torch.profiler.profile and export_chrome_trace",
        ),
        (
            rb'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"(?:source|model|runs|base|ranks)"\s*:',
            "a result of decodescope, not a trace",
            "name the trace that it was made from",
        ),
        (rb"\xfd7zXZ\x00", "compressed with xz", _PIPE_IT.format("xz -dc")),
        (rb"BZh[1-9]", "compressed with bzip2", _PIPE_IT.format("bzip2 -dc")),
        (rb"PK\x03\x04", "a zip archive", _PIPE_IT.format("unzip -p")),
        (rb".{257}ustar", "a tar archive", _PIPE_IT.format("tar -xOf")),
        (rb"\xff\xfe|\xfe\xff", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
        (rb"\x80[\x02-\x05]", "a pickle, as of a memory snapshot", "record a profiler trace"),
    )
)
# The properties of the devices come before it.
_LOOKED_AT_BYTES = 256 << 10
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d{1,9})\b')
# Enough for the head of a compressed file.
_BEGINNING_BYTES = 1 << 16
_SQLITE_MAGIC = b"SQLite format 3\x00"
NSYS_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
_ROCPROF_HEAD = re.compile(rb'\s*\{\s*"rocprofiler-sdk-tool"\s*:')
# Of a recording, one window is read, which is small.
_NOT_CACHED = ("recording",)
# The smallest file that may hold enough events to be kept: of gzip, one takes about 10 bytes.
_LARGE_BYTES = 4 << 20
# A tree of frames as JSON, or as MessagePack.
_HATCHET_HEAD = re.compile(
    rb'\s*\[\s*\{\s*"(?:children|frame|metrics)"\s*:|\x92\x83\xa5frame', re.DOTALL
)
# Field 1 of a message, in bytes that no text has.
_PERFETTO_HEAD = re.compile(rb"\n(?=[^\x00-\x08\x0e-\x1f]{0,64}[\x00-\x08\x0e-\x1f])", re.DOTALL)
_JSON = re.compile(rb"\s*(?:\{\s*[\"}]|\[\s*[{\]]|[\[{]\s*\Z)")


def is_no_trace(source: ByteSource) -> bool:
    """Whether the bytes begin as something else does that is known here."""
    return any(pattern.match(source.head) for pattern, _, _ in _NOT_TRACES)


def refuse(source: ByteSource) -> Trace:
    """Raise `TraceError`: what it is, and what to do instead."""
    kind, remedy = next(row[1:] for row in _NOT_TRACES if row[0].match(source.head))
    raise TraceError(f"{source.path}: {kind}; {remedy}")


def are_ranks(paths: Sequence[Path]) -> bool:
    """Whether each of several files names a rank that no other one names. Only their beginnings
    are read; what cannot be read names none."""
    named = [_said_rank(path) for path in paths]
    return len(paths) > 1 and None not in named and len(set(named)) == len(named)


def _said_rank(path: Path) -> int | None:
    if not path.is_file():
        return None
    beginning = b""
    try:
        with open_source(str(path)) as source:
            while len(beginning) < _LOOKED_AT_BYTES and (piece := source.read()):
                beginning += piece
    except TraceError:
        return None
    rank = _RANK.search(beginning[:_LOOKED_AT_BYTES])
    return None if rank is None else int(rank[1])


def load(path: Path | str, progress: Callable[[float], None] | None = None) -> Trace:
    """Read a trace in one of `FORMATS`, or a recording.

    `path` may be a file, a pipe, or "-" for the standard input; any of them may be packed with gzip
    or zstd. The first of `FORMATS` that recognises what it begins with reads it. `progress` is
    called with the share of a file that was read, except of SQLite, which is read in no order. The
    columns of a large file may come from the cache (`TraceCache`). Raises `TraceError` naming the
    file, what is wrong with it and what to do.
    """
    read = partial(_read, str(path), progress)
    if not _is_large_file(str(path)):
        return read()
    with open_source(str(path)) as source:
        name = next(name for name, recognises, _ in FORMATS if recognises(source))
    if name in _NOT_CACHED:
        return read()
    from decodescope.analyzer.readers.trace_cache import TraceCache

    return TraceCache().trace_of(Path(path), read)


def _is_large_file(path: str) -> bool:
    return path != "-" and os.path.isfile(path) and os.path.getsize(path) >= _LARGE_BYTES


def _read(path: str, progress: Callable[[float], None] | None) -> Trace:
    with open_source(path, progress) as source:
        trace = next(read for _, recognises, read in FORMATS if recognises(source))(source)
        if not source.trailing_bytes:
            return trace
    message = f"{source.trailing_bytes:,} bytes follow the compressed data, and are not read"
    return replace(trace, findings=(*trace.findings, Finding("trailing_data", message)))


def format_of(path: Path) -> str:
    """The name of the format in `FORMATS` that the file begins as, "" for what is no trace.

    Raises:
        OSError: the file cannot be read.
        TraceError: it is no valid gzip or zstd.
    """
    with path.open("rb") as file:
        source = ByteSource(BytesIO(file.read(_BEGINNING_BYTES)), str(path), file=path)
    name = next(name for name, recognises, _ in FORMATS if recognises(source))
    return "" if name == "kineto" and not _JSON.match(source.head) else name


def _read_recorded_window(source: ByteSource) -> Trace:
    """The last captured window of a recording, of all ranks if they have one clock, else of the
    first; its source format is "recording"."""
    if source.file is None:
        remedy = "save it to a file and name that"
        recording = recording_in(source.read_all(remedy), source.path)
    else:
        recording = read_recording(source.file)
    packed = recording.last_packed_traces()
    traces = [read_kineto_bytes(one, source.path) for one in packed]
    trace = traces[0] if len(traces) == 1 else merge_ranks(traces).merged or traces[0]
    live = recording.rates_at(recording.windows[-1])
    own = {"path": source.path, "format": "recording", "live": live}
    shown = msgspec.structs.replace(trace.source, **own)
    return replace(trace, source=shown, findings=(*recording.findings, *trace.findings))


def _read_sqlite(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.nsys.nsys_reader import read_nsys
    from decodescope.analyzer.readers.rocprof.rocpd import is_rocpd
    from decodescope.analyzer.readers.rocprof.rocprof_reader import read_rocpd
    from decodescope.analyzer.readers.sqlite_file import open_sqlite

    with open_sqlite(source) as file:
        return read_rocpd(file) if is_rocpd(file.tables) else read_nsys(file)


def _read_nsys_report(source: ByteSource) -> Trace:
    """The export of a report, made with `nsys`; the trace is named by the report."""
    from decodescope.analyzer.readers.nsys.report_export import exported

    if source.file is None:
        raise TraceError(
            f"{source.path}: a report of Nsight Systems, which nsys reads from a plain file only; "
            "save it to one and name that"
        )
    with open_source(str(exported(source.file))) as export:
        trace = _read_sqlite(export)
    return replace(trace, source=msgspec.structs.replace(trace.source, path=source.path))


def _read_rocprof(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.rocprof.rocprof_reader import read_rocprof

    return read_rocprof(source)


def _read_hatchet(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.proton.hatchet import read_hatchet

    return read_hatchet(source)


def _read_perfetto(source: ByteSource) -> Trace:
    from decodescope.analyzer.readers.perfetto.perfetto_reader import read_perfetto

    return read_perfetto(source)


_Recognises = Callable[[ByteSource], bool]
# The name of a format ("" for what is no trace), whether a source has it, and what reads it.
FORMATS: tuple[tuple[str, _Recognises, Callable[[ByteSource], Trace]], ...] = (
    ("sqlite", lambda source: source.head.startswith(_SQLITE_MAGIC), _read_sqlite),
    ("nsys", lambda source: source.path.endswith(NSYS_REPORT_SUFFIXES), _read_nsys_report),
    ("recording", lambda source: source.head.startswith(MAGIC), _read_recorded_window),
    ("rocprof", lambda source: bool(_ROCPROF_HEAD.match(source.head)), _read_rocprof),
    ("proton", lambda source: bool(_HATCHET_HEAD.match(source.head)), _read_hatchet),
    ("perfetto", lambda source: bool(_PERFETTO_HEAD.match(source.head)), _read_perfetto),
    ("", is_no_trace, refuse),
    ("kineto", lambda source: True, read_kineto),
)
