"""What a killed command leaves: whole files under their names, and what the next one removes."""

import gzip
import json
from pathlib import Path
from xml.etree import ElementTree

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.readers.trace_entry import (
    UNUSABLE,
    described_trace,
    open_entry,
    read_description,
)
from decodescope.analyzer.recordings.recording import read_recording

# The recording of a run that was killed is its user's.
_KEPT = ".partial"


def not_whole(path: Path) -> str:
    """Why a file is not whole; "" if it is, or if there is none."""
    try:
        if not path.exists():
            return ""
        if path.suffix == ".dsrec":
            recording = read_recording(path)
            list(recording.frames())
            return "".join(f"{path.name}: {finding.message}" for finding in recording.findings)
        if path.suffix == ".columns":
            with open_entry(path) as file:
                described_trace(read_description(file), file)
            return ""
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if ".json" in path.suffixes:
            json.loads(data)
        elif path.suffix == ".html":
            return "" if data.rstrip().endswith(b"</html>") else f"{path.name}: no end of the page"
        elif path.suffix == ".xml":
            ElementTree.fromstring(data)
        elif not data.endswith(b"\n"):
            return f"{path.name}: no end of the last line"
    except (DecodescopeError, EOFError, SyntaxError, *UNUSABLE) as error:
        return f"{path.name}: {error}"
    return ""


def left(folder: Path, temporary: Path, outputs: tuple[str, ...]) -> list[str]:
    """The files and folders that match no output, nor are the recordings of killed runs."""
    known = {path for output in outputs for path in folder.glob(output)}
    known |= {parent for output in outputs for parent in (folder / output).parents}
    beside = {(folder / output).parent for output in outputs} - {folder}
    found = {*folder.rglob("*")}.union(*(parent.glob("*") for parent in beside))
    files = [
        path
        for path in sorted(found)
        if path not in known
        and path.suffix != _KEPT
        and (path.name.startswith(".") or path.parent not in beside)
    ]
    return [str(path.name) for path in (*files, *temporary.iterdir())]
