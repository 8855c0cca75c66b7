"""The daemon's socket: one at a time, of one user, and nothing left behind."""

import errno
import os
import secrets
import socket
from pathlib import Path

import pytest

from decodescope.attach.kineto.daemon_socket import DaemonSocket, daemon_address
from tests.helpers.libkineto import request


@pytest.fixture(params=["abstract", "file"])
def address(request: pytest.FixtureRequest, socket_folder: str) -> bytes | str:
    if request.param == "file":
        return daemon_address(socket_folder)
    return b"\0decodescope-test-" + secrets.token_hex(8).encode() + b"\0"


def client(name: bytes | str) -> socket.socket:
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    endpoint.bind(name)
    return endpoint


def test_the_address_is_dynologs() -> None:
    assert daemon_address(None) == daemon_address("") == b"\0dynolog\0"
    assert daemon_address("/run/sockets") == "/run/sockets/dynolog"


def test_a_datagram_comes_with_its_sender_and_is_answered(
    address: bytes | str, socket_folder: str
) -> None:
    with DaemonSocket(address) as daemon, client(f"{socket_folder}/client") as sender:
        sender.sendto(request([1, 2]), address)
        datagram = daemon.receive(5)
        assert datagram is not None
        assert datagram.data == request([1, 2])
        assert datagram.sender_pid == os.getpid()
        assert daemon.answer(datagram, b"answer")
        assert sender.recv(100) == b"answer"
        assert daemon.receive(0) is None


def test_a_sender_that_is_gone_or_nameless_or_too_long_is_no_error(
    address: bytes | str, socket_folder: str
) -> None:
    with DaemonSocket(address) as daemon:
        with client(f"{socket_folder}/client") as sender:
            sender.sendto(b"x", address)
        datagram = daemon.receive(5)
        assert datagram is not None
        assert not daemon.answer(datagram, b"answer")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as nameless:
            nameless.sendto(b"x", address)
            assert daemon.receive(5) is None
        with client(f"{socket_folder}/long") as sender:
            sender.sendto(bytes(100_000), address)
            assert daemon.receive(5) is None


def test_a_datagram_of_another_user_is_ignored(
    address: bytes | str, socket_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaemonSocket(address) as daemon, client(f"{socket_folder}/client") as sender:
        sender.sendto(b"x", address)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert daemon.receive(5) is None
        monkeypatch.undo()
        sender.sendto(b"x", address)
        assert daemon.receive(5) is not None


def test_a_socket_in_use_is_refused_and_stays(address: bytes | str) -> None:
    with DaemonSocket(address):
        for _ in range(2):
            with pytest.raises(OSError, match="in use") as refused:
                DaemonSocket(address)
            assert refused.value.errno == errno.EADDRINUSE
    DaemonSocket(address).close()


def test_a_socket_file_of_a_killed_process_is_replaced(socket_folder: str) -> None:
    address = daemon_address(socket_folder)
    assert isinstance(address, str)
    client(address).close()
    assert Path(address).exists()
    with DaemonSocket(address), client(f"{socket_folder}/client") as sender:
        sender.sendto(b"x", address)
    assert not Path(address).exists()


def test_a_file_that_is_no_socket_stays(socket_folder: str) -> None:
    file = Path(socket_folder, "dynolog")
    file.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        DaemonSocket(daemon_address(socket_folder))
    assert file.read_text() == "mine"


def test_200_sockets_leave_no_descriptor(address: bytes | str) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(200):
        with DaemonSocket(address) as daemon, pytest.raises(OSError, match="in use"):
            DaemonSocket(address)
        daemon.close()
    assert set(os.listdir("/proc/self/fd")) == before
