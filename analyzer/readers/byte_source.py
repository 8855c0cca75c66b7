"""The bytes of a trace in pieces, from a file or a pipe, decompressed and limited in number.

What the bytes are is decided by their content: gzip and zstd by their magic numbers, never by the
file's name.
"""

import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Protocol

from decodescope.analyzer.errors import TraceError

MAX_DECOMPRESSED_BYTES = 8 << 30
MAX_BYTES_IN_MEMORY = 1 << 30
STDIN = "<stdin>"
# That of zstd; shorter data is no frame.
_LONGEST_MAGIC = 4
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# A frame that a decoder passes over begins with 0x184D2A50 to 0x184D2A5F, in little endian.
_SKIPPED_LOW, _SKIPPED_MAGIC = range(0x50, 0x60), b"\x2a\x4d\x18"
_GZIP_WINDOW = 31
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_PIECE_BYTES = 1 << 20
# What one call of the decompressor gets: it copies what it does not use, such as a next member.
_PACKED_BYTES = 1 << 16
# Traces unpack to 7 to 30 times their size, since each event has times and ids of its own; a file
# of one repeated byte to 1,000 times.
_MAX_RATIO = 200
_UNPACKED_FREELY = 64 << 20
_HEAD_BYTES = 4096


class _Member(Protocol):
    """One member of gzip, or frame of zstd, while it is unpacked.

    `decompress` takes packed bytes, and keeps those that it does not use: unless `needs_input`, it
    can be called again with none. At the end of the member (`eof`), `unused_data` follow it.
    """

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


# How a member is begun, and what it raises for broken data.
_Packing = tuple[Callable[[], _Member], type[Exception]]


class _GzipMember:
    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP_WINDOW)

    @property
    def eof(self) -> bool:
        return self._member.eof

    @property
    def needs_input(self) -> bool:
        return not self._member.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._member.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._member.decompress(self._member.unconsumed_tail + data, max_length)


def _packing_of(head: bytes) -> _Packing | None:
    """The packing of a member that begins with these bytes; None if they are not packed."""
    if head.startswith(_GZIP_MAGIC):
        return _GzipMember, zlib.error
    skipped = head[1:_LONGEST_MAGIC] == _SKIPPED_MAGIC and head[0] in _SKIPPED_LOW
    return _zstd() if skipped or head.startswith(_ZSTD_MAGIC) else None


def _zstd() -> _Packing:
    # Few traces are packed so; the others do without this module.
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor, zstd.ZstdError


class ByteSource:
    """Reads `stream` piece by piece, unpacked (gzip, zstd) and without a UTF-8 byte order mark.

    `head` is what the bytes begin with (up to 4,096 of them; `read` returns them as well). `path`
    names the source in messages. `file` is the file that holds these very bytes and can be opened
    again; None for a pipe, a compressed file and bytes in memory. `truncated` is set when packed
    bytes end early or are broken; `trailing_bytes` follow their last member, and are no padding of
    zeros. `progress` gets the number of bytes that `stream` gave.

    Raises `TraceError` when reading fails, what is no plain file has more than `max_bytes`, or what
    is packed unpacks to over 200 times its size (beyond 64 MiB).
    """

    def __init__(
        self,
        stream: BufferedIOBase,
        path: str,
        max_bytes: int = MAX_DECOMPRESSED_BYTES,
        file: Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.path = path
        self.truncated = False
        self.trailing_bytes = 0
        self._max_bytes = max_bytes
        self._progress = progress
        pieces = self._raw(stream, endless=file is None)
        first = _join_until(pieces, _LONGEST_MAGIC)
        packing = _packing_of(first)
        self.file = file if packing is None else None
        start = first
        if packing is not None:
            start, packed = b"", chain((first,), pieces)
            pieces = self._unpacked(packing, packed, endless=file is None)
        self._pieces = pieces
        start = _join_until(self._pieces, _HEAD_BYTES, start)
        self._start = start.removeprefix(_BYTE_ORDER_MARK)
        self.head = self._start[:_HEAD_BYTES]

    def read(self) -> bytes:
        """The next piece, b"" at the end."""
        if self._start:
            start, self._start = self._start, b""
            return start
        return next(self._pieces, b"")

    def save(self, path: Path) -> Path:
        """Write what is left to `path`.

        Raises:
            OSError: it cannot be written.
        """
        with path.open("wb") as file:
            while piece := self.read():
                file.write(piece)
        return path

    def read_all(self, remedy: str, most: int | None = None) -> bytearray:
        """All bytes that are left.

        Raises:
            TraceError: over `most` bytes (1 GiB), with what to do about it (`remedy`).
        """
        data, most = bytearray(), most or MAX_BYTES_IN_MEMORY
        while piece := self.read():
            data += piece
            if len(data) > most:
                raise TraceError(f"{self.path}: over {most >> 20} MiB; {remedy}")
        return data

    def _raw(self, stream: BufferedIOBase, endless: bool) -> Iterator[bytes]:
        total = 0
        while True:
            try:
                # `read` would go on until the piece is full, and see no Ctrl-C on the way.
                piece = stream.read1(_PIECE_BYTES)
            except OSError as error:
                reason = error.strerror or str(error)
                raise TraceError(f"{self.path}: reading failed ({reason}); check it") from error
            if not piece:
                return
            total += len(piece)
            if endless and total > self._max_bytes:
                raise self._too_much("gives")
            if self._progress is not None:
                self._progress(total)
            yield piece

    def _too_much(self, does: str) -> TraceError:
        limit = f"{self._max_bytes >> 30} GiB"
        return TraceError(f"{self.path}: {does} more than {limit}; record a shorter window")

    def _unpacked(self, packing: _Packing, rest: Iterator[bytes], endless: bool) -> Iterator[bytes]:
        packed = total = 0
        begin, broken = packing
        member = begin()
        pieces = (
            piece[at : at + _PACKED_BYTES]
            for piece in rest
            for at in range(0, len(piece), _PACKED_BYTES)
        )
        pending = b""
        while True:
            if not pending and (member.eof or member.needs_input):
                pending = next(pieces, b"")
                packed += len(pending)
                if not pending:
                    break
            if member.eof:
                pending = _join_until(pieces, _LONGEST_MAGIC, pending)
                if _packing_of(pending) != packing:
                    self.trailing_bytes = _more_than_zeros(chain((pending,), pieces))
                    return
                member = begin()
            try:
                unpacked = member.decompress(pending, _PIECE_BYTES)
            except broken:
                self.truncated = True
                return
            total += len(unpacked)
            if endless and total > self._max_bytes:
                raise self._too_much("unpacks to")
            if total > max(_UNPACKED_FREELY, _MAX_RATIO * packed):
                raise TraceError(
                    f"{self.path}: unpacks to over {_MAX_RATIO} times its size, as no trace does; "
                    "record it again"
                )
            if unpacked:
                yield unpacked
            pending = member.unused_data
        self.truncated = not member.eof


def _more_than_zeros(pieces: Iterator[bytes]) -> int:
    """The number of bytes, 0 if all of them are zero: archives on tape end so."""
    count, is_padding = 0, True
    for piece in pieces:
        count += len(piece)
        is_padding = is_padding and not piece.strip(b"\0")
    return 0 if is_padding else count


@contextmanager
def open_source(path: str, progress: Callable[[float], None] | None = None) -> Iterator[ByteSource]:
    """Open a file, a pipe, or for "-" the standard input, which is then named `<stdin>`. `progress`
    is called with the share of a file that was read.

    Raises `TraceError` if it cannot be opened or read, is a terminal, or a pipe without a byte.
    """
    with _open(path) as stream:
        shown = STDIN if path == "-" else path
        if stream.isatty():
            raise TraceError(f"{shown}: is a terminal; pipe a trace into it, or name a file")
        status = os.fstat(stream.fileno())
        regular = stat.S_ISREG(status.st_mode)
        named = regular and path != "-"

        def report(count: int) -> None:
            if regular and progress is not None:
                progress(min(count / max(status.st_size, 1), 1.0))

        source = ByteSource(stream, shown, file=Path(path) if named else None, progress=report)
        if not regular and not source.head and not source.truncated:
            raise TraceError(
                f"{shown}: gave no bytes; check the command that writes them "
                "(a pipe can be read only once)"
            )
        yield source


def _open(path: str) -> BufferedIOBase:
    if path == "-":
        if sys.stdin is None:
            raise TraceError(f"{STDIN}: is closed; pipe a trace into it, or name a file")
        return open(sys.stdin.fileno(), "rb", closefd=False)
    file = Path(path)
    try:
        if file.is_dir():
            raise TraceError(f"{path}: is a folder, not a trace; name the trace file inside it")
        return file.open("rb")
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TraceError(
            f"{path}: cannot be read ({reason}); check the path and its rights"
        ) from None


def _join_until(pieces: Iterator[bytes], count: int, start: bytes = b"") -> bytes:
    """`start` and as many pieces as it takes to have `count` bytes, fewer only at the end."""
    joined = start
    while len(joined) < count and (piece := next(pieces, b"")):
        joined += piece
    return joined
