"""A server of recorded answers as a process of its own, which says its URL and serves until it is
ended: `python -m tests.helpers.servers.recorded TRACE_FOLDER`."""

import sys
import threading
from pathlib import Path

from tests.helpers.servers.engines import Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request


def main(traces: Path) -> None:
    """It keeps nothing of what it was asked, so that its memory stays as it is."""
    vllm = Vllm(traces, ranks=1)

    def answer(request: Request) -> Reply:
        server.requests.clear()
        return vllm(request)

    with HttpServer(answer) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
