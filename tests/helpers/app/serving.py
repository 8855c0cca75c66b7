"""A server of `decodescope serve`, in a process of its own."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Served:
    """A server, the address that it printed, and its process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port, self.root = process, port, f"http://127.0.0.1:{port}"
        assert process.stderr is not None
        self.said = process.stderr.readline()
        self.address = self.said.split()[0]
        assert self.address.startswith(f"{self.root}/?token=")


@contextmanager
def serving(*arguments: str, folder: Path | None = None) -> Iterator[Served]:
    """A server of `arguments` that runs in `folder`, None for this process's."""
    port = free_port()
    command = [sys.executable, "-m", "decodescope", "serve", *arguments, "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder)
    try:
        yield Served(process, port)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
