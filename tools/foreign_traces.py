"""Downloads the traces recorded by others that the tests read, from public repositories.

`python -m tools.foreign_traces` writes each trace of tests/data/foreign_traces.toml to the user's
cache folder, where the tests find it. The commits are pinned, and a trace whose SHA-256 differs is
not kept.
"""

import argparse
import hashlib
import http.client
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import msgspec
from platformdirs import user_cache_path

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.io.files import write_atomically
from decodescope.analyzer.text.plain import plain_line

HOST = "https://raw.githubusercontent.com"
LIST = Path(__file__).resolve().parent.parent / "tests" / "data" / "foreign_traces.toml"
# tests/helpers/foreign/traces.py looks there too.
FOLDER = user_cache_path("decodescope") / "foreign-traces"
_CHUNK_BYTES = 1 << 16


class ForeignTrace(msgspec.Struct, frozen=True):
    """A file of a public repository. `name` is the name that tests know it by."""

    name: str
    repository: str
    commit: str
    path: str
    bytes: int
    sha256: str


class ForeignTraces(msgspec.Struct, frozen=True):
    """The traces that can be downloaded, and the names of those that no repository offers."""

    traces: tuple[ForeignTrace, ...]
    unpublished: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """Where traces come from, and how long a server may be silent and take for one file."""

    host: str = HOST
    silence_s: float = 30
    whole_s: float = 300


def listed_traces() -> ForeignTraces:
    """The traces that tests read."""
    return msgspec.toml.decode(LIST.read_bytes(), type=ForeignTraces)


def is_intact(trace: ForeignTrace, path: Path) -> bool:
    """Whether `path` holds the trace, by size and SHA-256."""
    try:
        if path.stat().st_size != trace.bytes:
            return False
        return hashlib.sha256(path.read_bytes()).hexdigest() == trace.sha256
    except OSError:
        return False


def download(trace: ForeignTrace, folder: Path, source: Source) -> Path:
    """Write the trace into `folder`, whole or not at all.

    Raises:
        MissingRequirement: the server does not answer, or not in time, or has no such file.
        InputError: the server sent something else, or the file cannot be written.
    """
    url = f"{source.host}/{trace.repository}/{trace.commit}/{trace.path}"
    data = _received(url, trace, source)
    digest = hashlib.sha256(data).hexdigest()
    if digest != trace.sha256:
        raise InputError(
            f"{trace.name}: {url} has SHA-256 {digest}, expected {trace.sha256}; nothing was kept"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror})") from error
    path = folder / trace.name
    write_atomically(path, data)
    return path


def _received(url: str, trace: ForeignTrace, source: Source) -> bytes:
    """The bytes of the file, at most one more than it should have."""
    deadline = time.monotonic() + source.whole_s
    data = bytearray()
    try:
        with urllib.request.urlopen(url, timeout=source.silence_s) as answer:
            while len(data) <= trace.bytes and (part := answer.read1(_CHUNK_BYTES)):
                data += part
                if time.monotonic() > deadline:
                    raise TimeoutError
    except urllib.error.HTTPError as error:
        raise MissingRequirement(
            f"{trace.name}: {url} answers {error.code} {plain_line(str(error.reason))}"
        ) from error
    except TimeoutError as error:
        raise MissingRequirement(f"{trace.name}: {url} takes too long; try again later") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            reason = "no answer in time"
        raise MissingRequirement(
            f"{trace.name}: {url} cannot be reached ({plain_line(str(reason).strip())}); "
            "connect to the network and try again"
        ) from error
    if len(data) != trace.bytes:
        sent = "more" if len(data) > trace.bytes else f"only {len(data):,}"
        raise InputError(
            f"{trace.name}: {url} sent {sent} of {trace.bytes:,} bytes; nothing was kept"
        )
    return bytes(data)


def download_all(folder: Path, source: Source) -> None:
    """Download every listed trace that `folder` does not hold intact, and say so on stderr.

    Raises:
        DecodescopeError: a trace could not be downloaded. The traces before it are kept.
    """
    listed = listed_traces()
    for trace in listed.traces:
        if is_intact(trace, folder / trace.name):
            sys.stderr.write(f"{trace.name}: already there\n")
            continue
        path = download(trace, folder, source)
        sys.stderr.write(f"{path}: {trace.bytes:,} bytes from {trace.repository}\n")
    for name in listed.unpublished:
        if not (folder / name).exists():
            sys.stderr.write(f"{name}: in no public repository; its tests are skipped\n")


def main(arguments: list[str] | None = None, source: Source | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.foreign_traces", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="[default: %(default)s]")
    folder = parser.parse_args(arguments).folder
    try:
        download_all(folder, source or Source())
    except DecodescopeError as error:
        sys.stderr.write(f"foreign traces: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("foreign traces: interrupted; start again to get the rest\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
