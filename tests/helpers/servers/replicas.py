"""Several servers that speak as vLLM does, each with traces of its own on the machine's clock."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.group_door import GroupDoor
from decodescope.attach.servers.server_door import Pace, ServerDoor
from tests.helpers.libkineto import trace
from tests.helpers.servers.engines import Load, Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request

QUICK = Pace(observe_s=0.05, poll_s=0.01, steps_s=5.0, files_s=5.0)
# Steps of 1 ms in a trace: the windows of servers on a busy machine overlap.
STEPS = 200


@dataclass
class RealClock:
    """The time of the machine, as `Load` reads it."""

    began_s: float = field(default_factory=time.monotonic)

    @property
    def now_s(self) -> float:
        return 1000.0 + time.monotonic() - self.began_s


@dataclass
class Replica(Vllm):
    """A server whose window is a trace of `STEPS` steps with a kernel each, which no other has.
    While `hangs` is not set, it answers no request for metrics; with `together`, none to start a
    window before the others have theirs. The first `lost` windows have no kernels."""

    number: int = 0
    lost: int = 0
    hangs: threading.Event = field(default_factory=threading.Event)
    together: threading.Barrier | None = None
    began_s: float = 0.0

    def __post_init__(self) -> None:
        self.hangs.set()

    def __call__(self, request: Request) -> Reply:
        if request.path == "/metrics":
            self.hangs.wait(20)
        return super().__call__(request)

    def _start(self) -> Reply:
        if self.together is not None:
            self.together.wait(20)
        self.began_s = time.time()
        return super()._start()

    def _stop(self, traces: Path) -> Reply:
        if self.load.recording:
            self.load.stop()
            self.windows += 1
            has_kernels = self.windows > self.lost
            data = trace(self.number, int(self.began_s * 1000), STEPS, has_kernels)
            path = traces / f"rank0.{self.windows}.pt.trace.json.gz"
            path.write_bytes(gzip.compress(data, mtime=0))
        return Reply()


@dataclass
class Servers:
    """Running servers, the door into all of them, and the folders for their traces."""

    replicas: list[Replica]
    https: list[HttpServer]
    folders: list[Path]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.https]

    @property
    def names(self) -> list[str]:
        return [url.removeprefix("http://") for url in self.urls]

    def door(self, answer_s: float = 5.0) -> GroupDoor:
        return GroupDoor(self.doors(), answer_s, QUICK.observe_s)

    def doors(self) -> list[ServerDoor]:
        clients = [ServerClient(parse_address(url)) for url in self.urls]
        return [
            ServerDoor(client, recognise(client), folder, QUICK)
            for client, folder in zip(clients, self.folders, strict=True)
        ]


@contextmanager
def servers(above: Path, count: int = 2) -> Iterator[Servers]:
    with ExitStack() as stack:
        folders = [above / f"traces-{number}" for number in range(count)]
        for folder in folders:
            folder.mkdir()
        replicas = [
            Replica(folder, Load(RealClock()), number=number)  # type: ignore[arg-type]
            for number, folder in enumerate(folders, 1)
        ]
        https = [stack.enter_context(HttpServer(replica)) for replica in replicas]
        yield Servers(replicas, https, folders)
        for replica in replicas:
            replica.hangs.set()
