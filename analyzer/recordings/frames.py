"""The format of recordings: the magic, one version byte, and frames that are only appended.

A frame is a length and a checksum, both big-endian uint32, and that many bytes of msgpack: a
message, or a captured window (its `TraceReady` or `WindowTaken`, and its gzipped Kineto JSON), each
with its time in ns since the recording began. The checksum is the CRC-32 of the length and the
msgpack; frames of version 1 have none. The complete frames of a killed run stay readable under the
name that ends in `.partial`.
"""

import struct
import zlib
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta, Struct

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.attach_messages import AttachMessage, WindowTaken
from decodescope.analyzer.protocol.messages import MAX_FRAME_BYTES, TraceReady, WorkerMessage

MAGIC = b"DSREC"
VERSION = 2
HEADER = MAGIC + bytes([VERSION])
STATS_INTERVAL_NS = 250_000_000
_LENGTH = struct.Struct(">I")
_PREFIX_BYTES = {1: _LENGTH.size, VERSION: 2 * _LENGTH.size}
_LONGEST_NS = 1 << 62

RecordedMessage = WorkerMessage | AttachMessage
RecordedNs = Annotated[int, Meta(ge=0, le=_LONGEST_NS)]


class MessageFrame(Struct, frozen=True, array_like=True, tag="m"):
    t_ns: RecordedNs
    message: RecordedMessage


class WindowFrame(Struct, frozen=True, array_like=True, tag="w"):
    """`others_gz` are the traces that `message.others` names."""

    t_ns: RecordedNs
    message: TraceReady
    trace_gz: bytes
    others_gz: tuple[bytes, ...] = ()

    @property
    def traces_gz(self) -> tuple[bytes, ...]:
        return self.trace_gz, *self.others_gz


class TakenFrame(Struct, frozen=True, array_like=True, tag="t"):
    t_ns: RecordedNs
    message: WindowTaken
    traces_gz: tuple[bytes, ...]


Frame = MessageFrame | WindowFrame | TakenFrame
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


class CutFrame(TraceError):
    """The bytes end inside a frame: the file was cut, or more of it is yet to be written."""


class UnknownFrame(TraceError):
    """The frame is as it was written, and holds nothing that this version knows."""


def encoded(frame: Frame) -> bytes | None:
    """The bytes of a frame, None if it is longer than a frame may be."""
    body = _encoder.encode(frame)
    length = _LENGTH.pack(len(body))
    return None if len(body) > MAX_FRAME_BYTES else length + _checksum(length, body) + body


def read_frame(file: BinaryIO, version: int = VERSION) -> Frame:
    """The next frame of a file of this version.

    Raises:
        EOFError: the file's end.
        CutFrame: the file ends inside it.
        UnknownFrame: a later version wrote it.
        TraceError: the frame is damaged.
    """
    prefix = file.read(_PREFIX_BYTES[version])
    if not prefix:
        raise EOFError
    if len(prefix) < _PREFIX_BYTES[version]:
        raise CutFrame("the recording ends inside a frame")
    packed, checksum = prefix[: _LENGTH.size], prefix[_LENGTH.size :]
    (length,) = _LENGTH.unpack(packed)
    damaged = TraceError("the recording holds a damaged frame")
    if length > MAX_FRAME_BYTES:
        raise damaged
    body = file.read(length)
    if len(body) < length:
        raise CutFrame("the recording ends inside a frame")
    if checksum and checksum != _checksum(packed, body):
        raise damaged
    try:
        frame = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise (UnknownFrame("unknown frame") if checksum else damaged) from error
    if isinstance(frame, WindowFrame) and not frame.others_gz:
        # Files that are not in the recording.
        alone = msgspec.structs.replace(frame.message, others=())
        frame = msgspec.structs.replace(frame, message=alone)
    return frame


def _checksum(length: bytes, body: bytes) -> bytes:
    return _LENGTH.pack(zlib.crc32(body, zlib.crc32(length)))
