"""What a window costs is said as it was measured."""

import json
import os
from pathlib import Path

from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import read_process
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import EngineServer
from decodescope.attach.servers.server_door import ServerDoor


def test_the_cost_that_is_said_is_that_of_the_record(repository: Path, tmp_path: Path) -> None:
    record = json.loads((repository / "benchmarks/results/attach-cost.json").read_text())
    measured = []
    for place in ("during", "after"):
        loops = record["variants"].values()
        slower = sorted(round(100 * (1 - loop[f"{place}_over_before"])) for loop in loops)
        measured.append(f"{slower[0]} to {slower[-1]} %")
    process = read_process(os.getpid())
    assert process is not None
    vllm = EngineServer("vllm", None, None, None, "/metrics")
    doors = KinetoDoor([process]), ServerDoor(ServerClient(parse_address(":1")), vllm, tmp_path)
    pages = (repository / "docs" / name for name in ("engines.md", "usage.md"))
    for text in (*(door.cost for door in doors), *(page.read_text() for page in pages)):
        assert [share for share in measured if share not in " ".join(text.split())] == []
