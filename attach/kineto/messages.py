"""The datagrams between libkineto and its daemon: encoded and decoded, without a socket.

A message is a header (`<Q32s`: bytes of the body, type padded with zeros) and a body. A process
sends `req` (`<iiq`: kind, count of pids, job; then the pids, its own first) to ask for a
configuration, and once `ctxt` (`<iiq`: GPU, pid, job) to register. The answer has the same type;
its body is the configuration as text, or the number of registered processes.
"""

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("<Q32s")
_REQUEST = struct.Struct("<iiq")
_REGISTRATION = struct.Struct("<iiq")
_COUNT = struct.Struct("<i")
_REQUEST_TYPE, _REGISTRATION_TYPE = b"req", b"ctxt"
# The bit of a request's kind that asks for windows; a process whose profiler runs leaves it out.
_ACTIVITIES = 2
# A process has far fewer ancestors.
MAX_DATAGRAM_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """A process asks for a configuration; `pids` are its own and those of its ancestors."""

    kind: int
    job: int
    pids: tuple[int, ...]

    @property
    def takes_window(self) -> bool:
        """Whether no profiler runs in the process, so that a window can be opened."""
        return bool(self.kind & _ACTIVITIES)


@dataclass(frozen=True, slots=True)
class Registration:
    """A process says that it is there."""

    gpu: int
    pid: int
    job: int


def decode(datagram: bytes) -> ConfigRequest | Registration | None:
    """The message in a datagram, None if it is malformed or of another type."""
    if len(datagram) < _HEADER.size:
        return None
    body_bytes, padded_type = _HEADER.unpack_from(datagram)
    body = datagram[_HEADER.size :]
    if body_bytes != len(body):
        return None
    message_type, _, padding = padded_type.partition(b"\0")
    if padding.strip(b"\0"):
        return None
    if message_type == _REQUEST_TYPE:
        return _decode_request(body)
    if message_type == _REGISTRATION_TYPE and len(body) == _REGISTRATION.size:
        return Registration(*_REGISTRATION.unpack(body))
    return None


def _decode_request(body: bytes) -> ConfigRequest | None:
    if len(body) < _REQUEST.size:
        return None
    kind, count, job = _REQUEST.unpack_from(body)
    if count < 1 or len(body) != _REQUEST.size + 4 * count:
        return None
    pids = struct.unpack_from(f"<{count}i", body, _REQUEST.size)
    return ConfigRequest(kind, job, pids)


def encode_config(config: str) -> bytes:
    """The answer to a request: a configuration, "" for none."""
    return _encode(_REQUEST_TYPE, config.encode())


def encode_count(processes: int) -> bytes:
    """The answer to a registration: the number of registered processes."""
    return _encode(_REGISTRATION_TYPE, _COUNT.pack(processes))


def _encode(message_type: bytes, body: bytes) -> bytes:
    return _HEADER.pack(len(body), message_type) + body
