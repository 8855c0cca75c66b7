"""The app over a server on a port of this machine, which speaks as vLLM does."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.attach.door import WindowPlan
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.server_door import Pace, ServerDoor
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.attached import AttachLink
from decodescope.tui.model.sources import AttachSource
from tests.helpers.servers.engines import Load, Vllm
from tests.helpers.servers.http_server import HttpServer


@dataclass
class RealClock:
    """The time of the machine, as `Load` reads it."""

    began_s: float = field(default_factory=time.monotonic)

    @property
    def now_s(self) -> float:
        return 1000.0 + time.monotonic() - self.began_s


async def test_a_server_from_its_metrics_to_its_end(attachment, tmp_path: Path) -> None:
    server = HttpServer(Vllm(tmp_path, Load(RealClock()))).__enter__()
    try:
        client = ServerClient(parse_address(server.url))
        door = ServerDoor(client, recognise(client), tmp_path, Pace(0.05, 0.01, 5.0, 5.0))
        attachment.link = AttachLink(door, WindowPlan(tmp_path, 20), poll_s=0.05)
        attachment.app = DecodescopeApp(
            AttachSource(attachment.link), None, attachment.clock, tmp_path
        )
        async with attachment.app.run_test(size=(140, 40)) as pilot:
            await attachment.until(pilot, lambda: attachment.view.attached.is_known)
            shown = " ".join(attachment.shown.split())
            assert f"vLLM 0.32.0 at {server.url}, serving tiny" in shown
            assert "t takes a window of 20 ms" in shown
            for figure in ("tok/s", "8 running", "3 waiting", "KV 25.0 %", "inter-token p50"):
                assert figure in shown
            await attachment.take(pilot, 2)
            assert attachment.view.window.path.name == "rank0.2.pt.trace.json.gz"
            assert "tok/s" in attachment.view.choices[1].summary
            await pilot.press("D")
            await attachment.until(pilot, lambda: attachment.view.comparison.phase == "done")
            server.kill()
            await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
            assert "no answer for" in attachment.shown
        assert sorted(path.name for path in tmp_path.glob("rank*.gz")) == [
            f"rank{rank}.{window}.pt.trace.json.gz" for rank in (0, 1) for window in (1, 2)
        ]
    finally:
        server.kill()
