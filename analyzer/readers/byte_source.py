"""The bytes of a trace file in pieces, decompressed while reading, with a limit on their number."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from decodescope.analyzer.errors import TraceError

GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 1 << 20
MAX_DECOMPRESSED_BYTES = 8 << 30
_GZIP_WINDOW = 31


class ByteSource:
    """Reads `stream` piece by piece; `truncated` is set when a gzip stream ends early or is broken.

    Raises `TraceError` when a gzip file unpacks to more than `max_bytes`.
    """

    def __init__(
        self, stream: BinaryIO, path: str, max_bytes: int = MAX_DECOMPRESSED_BYTES
    ) -> None:
        self.path = path
        self.truncated = False
        self._max_bytes = max_bytes
        head = stream.read(len(GZIP_MAGIC))
        pieces = self._raw(stream, head)
        self._pieces = self._gunzip(pieces) if head == GZIP_MAGIC else pieces

    def read(self) -> bytes:
        """The next piece, b"" at the end."""
        return next(self._pieces, b"")

    def _raw(self, stream: BinaryIO, head: bytes) -> Iterator[bytes]:
        piece = head + stream.read(_PIECE_BYTES)
        while piece:
            yield piece
            piece = stream.read(_PIECE_BYTES)

    def _gunzip(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        total = 0
        decompressor = zlib.decompressobj(_GZIP_WINDOW)
        for piece in pieces:
            pending = piece
            while pending:
                if decompressor.eof:
                    if not pending.startswith(GZIP_MAGIC[: len(pending)]):
                        return
                    decompressor = zlib.decompressobj(_GZIP_WINDOW)
                try:
                    unpacked = decompressor.decompress(pending, _PIECE_BYTES)
                except zlib.error:
                    self.truncated = True
                    return
                total += len(unpacked)
                if total > self._max_bytes:
                    raise TraceError(
                        f"{self.path}: unpacks to more than {self._max_bytes >> 30} GiB; "
                        "record a shorter window"
                    )
                if unpacked:
                    yield unpacked
                pending = decompressor.unconsumed_tail or decompressor.unused_data
        self.truncated = not decompressor.eof


def open_stream(path: str) -> BinaryIO:
    """Open a file for reading; raises `TraceError` with the reason if that fails."""
    file = Path(path)
    if file.is_dir():
        raise TraceError(f"{path}: is a folder, not a trace; name the trace file inside it")
    try:
        return file.open("rb")
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(
            f"{path}: cannot be read ({reason}); check the path and its rights"
        ) from None
