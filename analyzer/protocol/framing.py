"""Frames: each is a big-endian uint32 length and that many bytes of msgpack, one tagged struct."""

import struct

import msgspec
from msgspec import Struct

from decodescope.analyzer.errors import InputError

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: Struct) -> bytes:
    """One message as a length-prefixed frame."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Turns a byte stream into the messages of one direction, however it is chunked.

    Raises `InputError` for a frame over `MAX_FRAME_BYTES` or one that is not such a message.
    """

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[object] = msgspec.msgpack.Decoder(union)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[object]:
        """Append `data` and return the messages it completes, in order."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise InputError(f"worker protocol: a frame of {length} bytes is over the limit")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                messages.append(self._decoder.decode(body))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"worker protocol: unreadable message ({error})") from error
        return messages
