"""The tools that decode: in processes of their own, which end with the call."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytest.importorskip("torch")

from decodescope.cli.mcp.server import server_of
from decodescope.cli.mcp.tool_host import ToolHost
from tests.helpers.agent import Agent, agent_of
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


def test_variants_are_compared(agent: Agent, folder: Path) -> None:
    compared = agent.call("compare", variants=["eager", "eager"], **SHORT)
    assert "compare: " in compared.error
    compared = agent.call("compare", variants=["eager"], repeats=1, **SHORT)
    assert compared.json["variants"][0]["variant"] == "eager"


def test_an_error_of_the_command_is_that_of_the_tool(agent: Agent) -> None:
    error = agent.call("run", **SHORT | {"variant": "nope"}).error
    assert error.startswith("run: ")
    assert "nope" in error
    error = agent.call("run", **SHORT | {"model": "--trace=x"}).error
    assert "--trace=x" in error


def test_a_cancelled_run_ends_its_process(agent: Agent) -> None:
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
