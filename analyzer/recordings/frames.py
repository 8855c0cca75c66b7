"""The format of recordings: the magic, one version byte, and frames that are only appended.

A frame is a big-endian uint32 length and that many bytes of msgpack: a message, or a captured
window (its `TraceReady` or `WindowTaken`, and its gzipped Kineto JSON), each with its time in ns
since the recording began. The complete frames of a killed run stay readable under the name that
ends in `.partial`.
"""

import struct
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta, Struct

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.protocol.attach_messages import AttachMessage, WindowTaken
from decodescope.analyzer.protocol.messages import MAX_FRAME_BYTES, TraceReady, WorkerMessage

MAGIC = b"DSREC"
VERSION = 1
HEADER = MAGIC + bytes([VERSION])
STATS_INTERVAL_NS = 250_000_000
_LENGTH = struct.Struct(">I")
_LONGEST_NS = 1 << 62

RecordedMessage = WorkerMessage | AttachMessage
RecordedNs = Annotated[int, Meta(ge=0, le=_LONGEST_NS)]


class MessageFrame(Struct, frozen=True, array_like=True, tag="m"):
    t_ns: RecordedNs
    message: RecordedMessage


class WindowFrame(Struct, frozen=True, array_like=True, tag="w"):
    t_ns: RecordedNs
    message: TraceReady
    trace_gz: bytes


class TakenFrame(Struct, frozen=True, array_like=True, tag="t"):
    t_ns: RecordedNs
    message: WindowTaken
    traces_gz: tuple[bytes, ...]


Frame = MessageFrame | WindowFrame | TakenFrame
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Frame] = msgspec.msgpack.Decoder(Frame)


class CutFrame(TraceError):
    """The bytes end inside a frame: the file was cut, or more of it is yet to be written."""


def encoded(frame: Frame) -> bytes | None:
    """The bytes of a frame, None if it is longer than a frame may be."""
    body = _encoder.encode(frame)
    return None if len(body) > MAX_FRAME_BYTES else _LENGTH.pack(len(body)) + body


def read_frame(file: BinaryIO) -> Frame:
    """The next frame.

    Raises:
        EOFError: the file's end.
        CutFrame: the file ends inside it.
        TraceError: the frame is unreadable.
    """
    prefix = file.read(_LENGTH.size)
    if not prefix:
        raise EOFError
    if len(prefix) < _LENGTH.size:
        raise CutFrame("the recording ends inside a frame")
    (length,) = _LENGTH.unpack(prefix)
    if length > MAX_FRAME_BYTES:
        raise TraceError("the recording holds an unreadable frame")
    body = file.read(length)
    if len(body) < length:
        raise CutFrame("the recording ends inside a frame")
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError("the recording holds an unreadable frame") from error
