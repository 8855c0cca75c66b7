"""Members of gzip files and frames of zstd files, unpacked piece by piece in the same way."""

import sys
import zlib
from collections.abc import Callable
from typing import Protocol

# That of zstd; shorter data is no frame.
LONGEST_MAGIC = 4
_GZIP_MAGIC, _ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# A frame that a decoder passes over begins with 0x184D2A50 to 0x184D2A5F, in little endian.
_SKIPPED_LOW, _SKIPPED_MAGIC = range(0x50, 0x60), b"\x2a\x4d\x18"
_GZIP_WINDOW = 31


class Unpacking(Protocol):
    """One member while it is unpacked; `errors` are what `decompress` raises for broken data.

    `decompress` takes packed bytes, and keeps those that it does not use: unless `needs_input`, it
    can be called again with none. At the end of the member (`eof`), `unused_data` follow it.
    """

    errors: tuple[type[Exception], ...]

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _GzipMember:
    errors = (zlib.error,)

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


class _ZstdFrame:
    def __init__(self) -> None:
        # Few traces are packed so; the others do without this module.
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd

        self.errors = (zstd.ZstdError,)
        self._frame = zstd.ZstdDecompressor()

    @property
    def eof(self) -> bool:
        return self._frame.eof

    @property
    def needs_input(self) -> bool:
        return self._frame.needs_input

    @property
    def unused_data(self) -> bytes:
        return self._frame.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._frame.decompress(data, max_length)


def packing_of(head: bytes) -> Callable[[], Unpacking] | None:
    """What unpacks a member that begins with these bytes; None if they are not packed."""
    if head.startswith(_GZIP_MAGIC):
        return _GzipMember
    skipped = head[1:LONGEST_MAGIC] == _SKIPPED_MAGIC and head[0] in _SKIPPED_LOW
    return _ZstdFrame if skipped or head.startswith(_ZSTD_MAGIC) else None
