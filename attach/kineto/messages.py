"""The datagrams between libkineto and its daemon: encoded and decoded, without a socket.

A message is a header (`<Q32s`: bytes of the body, type padded with zeros) and a body. A process
sends `req` (`<iiq`: kind, count of pids, job; then the pids, its own first) to ask for a
configuration, and once `ctxt` (`<iiq`: GPU, pid, job) to register. The answer has the same type;
its body is the configuration as text, or the number of registered processes.
"""

import struct
from enum import Enum, auto

_HEADER = struct.Struct("<Q32s")
_REQUEST = struct.Struct("<iiq")
_REGISTRATION = struct.Struct("<iiq")
_COUNT = struct.Struct("<i")
_REQUEST_TYPE, _REGISTRATION_TYPE = b"req", b"ctxt"
# The bit of a request's kind that asks for windows; a process whose profiler runs leaves it out.
_ACTIVITIES = 2
# A process has far fewer ancestors.
MAX_DATAGRAM_BYTES = 1 << 16


class Message(Enum):
    """A process asks for a configuration while no profiler runs in it (`REQUEST`) or while one does
    (`BUSY_REQUEST`), or registers."""

    REQUEST = auto()
    BUSY_REQUEST = auto()
    REGISTRATION = auto()


def decode(datagram: bytes) -> Message | None:
    """The message in a datagram, None if it is malformed or of another type."""
    if len(datagram) < _HEADER.size:
        return None
    body_bytes, padded_type = _HEADER.unpack_from(datagram)
    body, message_type = datagram[_HEADER.size :], padded_type.rstrip(b"\0")
    if body_bytes != len(body):
        return None
    if message_type == _REGISTRATION_TYPE and len(body) == _REGISTRATION.size:
        return Message.REGISTRATION
    if message_type != _REQUEST_TYPE or len(body) < _REQUEST.size:
        return None
    kind, count, _ = _REQUEST.unpack_from(body)
    if count < 1 or len(body) != _REQUEST.size + 4 * count:
        return None
    return Message.REQUEST if kind & _ACTIVITIES else Message.BUSY_REQUEST


def encode_config(config: str) -> bytes:
    """The answer to a request: a configuration, "" for none."""
    return _encode(_REQUEST_TYPE, config.encode())


def encode_count(processes: int) -> bytes:
    """The answer to a registration: the number of registered processes."""
    return _encode(_REGISTRATION_TYPE, _COUNT.pack(processes))


def _encode(message_type: bytes, body: bytes) -> bytes:
    return _HEADER.pack(len(body), message_type) + body
