"""The datagram socket that libkineto's processes send to; only those of the same user are heard.

A message is a header (`<Q32s`: bytes of the body, type padded with zeros) and a body. A process
sends `req` (`<iiq`: kind, count of pids, job; then the pids, its own first) to ask for a
configuration, and once `ctxt` (`<iiq`: GPU, pid, job) to register. The answer has the same type;
its body is the configuration as text, or the number of registered processes.
"""

import contextlib
import errno
import os
import select
import socket
import struct
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from decodescope.attach.door import Closeable

# pid, uid and gid of a sender, filled in by the kernel (unix(7), SCM_CREDENTIALS).
_CREDENTIALS = struct.Struct("3i")
_ENDPOINT = "dynolog"
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


@dataclass(frozen=True, slots=True)
class Datagram:
    """A datagram and its sender; the kernel vouches for `sender_pid`."""

    data: bytes
    address: bytes | str
    sender_pid: int

    @property
    def message(self) -> Message | None:
        return decode(self.data)


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


def daemon_address(socket_folder: str | None) -> bytes | str:
    """The address of the daemon: an abstract one, or a socket file where the processes have
    `KINETO_IPC_SOCKET_DIR` set to a folder."""
    return f"{socket_folder}/{_ENDPOINT}" if socket_folder else b"\0" + _ENDPOINT.encode() + b"\0"


class DaemonSocket(Closeable):
    """The bound socket; its end removes what it bound.

    Raises:
        OSError: it cannot be bound; `EADDRINUSE` if a process has it.
    """

    def __init__(self, address: bytes | str) -> None:
        self._file = Path(address) if isinstance(address, str) else None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            if self._file is not None:
                _remove_unused(self._file)
            self._socket.bind(address)
        except BaseException:
            self._socket.close()
            raise

    def receive(self, timeout_s: float) -> Datagram | None:
        """The next datagram of a process of this user, None if none comes in time, or one that
        another user sent or that is longer than any message."""
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return None
        try:
            data, ancillary, flags, address = self._socket.recvmsg(
                MAX_DATAGRAM_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
        except BlockingIOError:
            return None
        # A sender without an address can get no answer.
        if flags & socket.MSG_TRUNC or not address:
            return None
        for level, kind, credentials in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = _CREDENTIALS.unpack(credentials)
                return Datagram(data, address, pid) if uid == os.geteuid() else None
        return None

    def answer(self, datagram: Datagram, message: bytes) -> bool:
        """Send `message` to the sender of `datagram`; False if the sender cannot take it."""
        try:
            self._socket.sendto(message, datagram.address)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Unbind the socket; may be called again."""
        if self._file is not None and self._socket.fileno() >= 0:
            self._file.unlink(missing_ok=True)
        self._socket.close()


def _remove_unused(file: Path) -> None:
    """Remove a socket file that a killed process left.

    Raises:
        OSError: `EADDRINUSE` if a process still has it, or if the file is no socket.
    """
    if not file.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(os.fspath(file))
        except ConnectionRefusedError:
            with contextlib.suppress(FileNotFoundError):
                file.unlink()
        except FileNotFoundError:
            return
        else:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), os.fspath(file))
