"""The tools that decode: in processes of their own, which end with the call."""

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

pytest.importorskip("mcp")
pytest.importorskip("torch")

from decodescope.cli.mcp import running_tools
from decodescope.cli.mcp.server import server_of
from decodescope.cli.mcp.tool_host import ToolHost
from tests.helpers import preloaded
from tests.helpers.agent import Agent, agent_of
from tests.helpers.html_samples import sample_analysis, sample_comparison
from tests.helpers.processes import children, gone

SHORT = {"model": "tiny", "device": "cpu", "context": 8, "tokens": 8}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured")


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Agent]:
    with agent_of(server_of(ToolHost([folder], allow_write=True, allow_run=True))) as agent:
        yield agent


def test_a_run_is_measured_and_its_window_can_be_opened(agent: Agent, folder: Path) -> None:
    measured = agent.call("run", trace="window.json.gz", **SHORT).json
    assert (measured["model"], measured["variant"], measured["context"]) == ("tiny", "eager", 8)
    assert measured["tokens_per_s"] > 0
    assert measured["step_ns"]["p50"] > 0
    assert measured["parts"]
    assert measured["trace"] == "window.json.gz"
    assert (folder / "window.json.gz").is_file()
    assert agent.call("open", path="window.json.gz").json["capture"]["variant"] == "eager"


def test_variants_are_compared(agent: Agent, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is a stand-in here: two processes with torch take long."""
    compared = sample_comparison(sample_analysis().report)
    given: list[tuple[str, dict[str, Any]]] = []

    async def output(command: str, options: dict[str, Any]) -> bytes:
        given.append((command, options))
        return msgspec.json.encode(compared)

    monkeypatch.setattr(running_tools, "_output", output)
    reply = agent.call("compare", variants=["eager", "fused"], out="kept", **SHORT)
    ((command, options),) = given
    assert command == "compare"
    assert (options["variants"], options["model"]) == ("eager,fused", "tiny")
    assert options["out"] == folder / "kept"
    result = compared.comparison
    shown, rates = reply.json["variants"], result.variants
    assert [row["tokens_per_s"] for row in shown] == [one.mean for one in rates]
    speeds = [pair.speed for pair in result.pairs]
    assert [row["speed"]["value"] for row in reply.json["pairs"]] == [
        speed.value for speed in speeds if speed is not None
    ]


def test_two_variants_at_least(agent: Agent) -> None:
    assert "length >= 2" in agent.call("compare", variants=["eager"]).error


def test_an_error_of_the_command_is_that_of_the_tool(agent: Agent) -> None:
    error = agent.call("run", **SHORT | {"variant": "nope"}).error
    assert error.startswith("run: ")
    assert "nope" in error
    error = agent.call("run", **SHORT | {"model": "--trace=x"}).error
    assert "--trace=x" in error


def test_a_cancelled_run_ends_its_process(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    # It is ended long before it has imported torch.
    monkeypatch.setattr(preloaded, "needs_torch", lambda arguments: False)
    before = set(children(os.getpid()))
    call = agent.portal.start_task_soon(
        agent.client.call_tool, "run", SHORT | {"tokens": 100_000, "context": 8}
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (started := set(children(os.getpid())) - before):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    call.cancel()
    with pytest.raises(CancelledError):
        call.result()
    assert all(map(gone, started))
    assert agent.call("explain", term="step").text


def test_a_process_that_is_cancelled_as_it_starts_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preloaded, "needs_torch", lambda arguments: False)
    started = []

    async def cancelled() -> None:
        with anyio.CancelScope() as scope:

            class Started(subprocess.Popen[bytes]):
                def __init__(self, *arguments: Any, **options: Any) -> None:
                    super().__init__(*arguments, **options)
                    started.append(self)
                    scope.cancel()

            monkeypatch.setattr(subprocess, "Popen", Started)
            await running_tools._output("run", SHORT)

    anyio.run(cancelled)
    (process,) = started
    assert gone(process.pid)
    assert not caplog.messages
