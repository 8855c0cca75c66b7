"""The server of `mcp` ends with its client or by a signal, and with it what it runs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("mcp")

from tests.helpers.processes import children, gone

MOST_SECONDS, PATIENCE_S = 2.0, 60.0


def _send(server: subprocess.Popen[bytes], *lines: bytes) -> None:
    assert server.stdin is not None
    server.stdin.write(b"".join(line + b"\n" for line in lines))
    server.stdin.flush()


def _message(method: str, params: object, **keys: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **keys, "method": method, "params": params}).encode()


HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}
GARBAGE = (b"", b"\xff\x00", b"{", b"[]", b"null", b'{"jsonrpc": "2.0"}', b"x" * 1_000_000)
RUN = {"model": "tiny", "device": "cpu", "tokens": 100_000}


@pytest.mark.parametrize("ending", ["its input ends", "SIGTERM"])
def test_the_server_ends_with_its_client_or_by_a_signal(tmp_path: Path, ending: str) -> None:
    """Garbage does not end it; what it runs ends with it."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-P", "-m", "decodescope", "mcp", str(tmp_path), "--allow-run"]
    with subprocess.Popen(command, **pipes) as server:
        assert server.stdout is not None
        _send(server, *GARBAGE, _message("initialize", HELLO, id=1))
        answer = json.loads(server.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == "decodescope"
        _send(
            server,
            _message("notifications/initialized", {}),
            _message("tools/call", {"name": "run", "arguments": RUN}, id=2),
        )
        deadline = time.monotonic() + PATIENCE_S
        while not (started := children(server.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert started
        began = time.monotonic()
        if ending == "SIGTERM":
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_S) == 128 + signal.SIGTERM
            assert time.monotonic() - began < MOST_SECONDS
        _, err = server.communicate()
        assert ending == "SIGTERM" or server.returncode == 0
        assert err.strip() == b""
        assert all(map(gone, started))
