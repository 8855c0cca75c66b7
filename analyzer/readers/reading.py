"""Opens any trace file that decodescope reads, telling formats apart by content."""

from pathlib import Path

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import open_stream
from decodescope.analyzer.readers.kineto.reader import read_kineto
from decodescope.analyzer.readers.nsys.reader import read_nsys
from decodescope.analyzer.recordings.recording import MAGIC as RECORDING_MAGIC
from decodescope.analyzer.recordings.recording import load_trace
from decodescope.analyzer.trace import Trace

_NSYS_REPORTS = (".nsys-rep", ".qdrep")
_SQLITE_MAGIC = b"SQLite format 3\x00"


def load(path: Path | str) -> Trace:
    """Read a Kineto trace (.json, .json.gz), an Nsight Systems export (.sqlite) or a recording.

    Raises `TraceError` naming the file, what is wrong with it and what to do.
    """
    path = str(path)
    with open_stream(path) as stream:
        try:
            head = stream.read(len(_SQLITE_MAGIC))
        except OSError as error:
            raise TraceError(f"{path}: reading failed ({error}); check the file") from error
    if head == _SQLITE_MAGIC:
        return read_nsys(path)
    if path.endswith(_NSYS_REPORTS):
        raise TraceError(
            f"{path}: a report that only Nsight Systems reads; export it with "
            "nsys export --type sqlite and open that"
        )
    if head.startswith(RECORDING_MAGIC):
        return load_trace(path)
    return read_kineto(path)
