"""The server of `mcp` as a process, by the SDK's own client: every tool."""

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

pytest.importorskip("mcp")

from mcp import MCPError, StdioServerParameters

from decodescope import analyzer
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.answer import Bound
from decodescope.analyzer.vocabulary.terms import find_term
from decodescope.cli.analyze import summary_text
from decodescope.cli.mcp.places import RECORDINGS
from decodescope.cli.mcp.server import server_of
from decodescope.cli.mcp.timeline import TimelineArguments, timeline_tool
from decodescope.cli.mcp.tool_host import ToolHost
from decodescope.cli.mcp.tools import TOOLS
from tests.helpers.agent import Agent, agent_of
from tests.helpers.command import Command
from tests.helpers.foreign.traces import TraceFolder
from tests.helpers.kineto_events import DATA, call, document, op

TRACE = "h200_graph_replays.json.gz"
OTHER = "h200_compiled_replays.json.gz"
RECORDING = f"{RECORDINGS}h200-llama-3.2-1b-fused+graph"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces")
    for name in (TRACE, OTHER):
        shutil.copy(DATA / name, folder / name)
    return folder


def command(folder: Path, *options: str) -> list[str]:
    return [sys.executable, "-P", "-m", "decodescope", "mcp", str(folder), *options]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("PYTHON", "XDG"))}


@pytest.fixture(scope="module")
def agent(folder: Path) -> Iterator[Agent]:
    """A client of a process of its own, which may write."""
    executable, *arguments = command(folder, "--allow-write")
    parameters = StdioServerParameters(command=executable, args=arguments, env=environment())
    with agent_of(parameters) as agent:
        yield agent


@pytest.fixture(scope="module")
def report(folder: Path) -> Any:
    """The report of the trace as built-in values, as `analyze --json` prints it."""
    analysis = analyzer.analyze(analyzer.load(folder / TRACE))
    return msgspec.json.decode(msgspec.json.encode(analysis.report))


def test_each_tool_says_what_it_is_for_and_what_it_takes(agent: Agent) -> None:
    tools = {tool.name: tool for tool in agent.portal.call(agent.client.list_tools).tools}
    assert list(tools) == [
        "open",
        "answer",
        "kernels",
        "gaps",
        "layers",
        "timeline",
        "diff",
        "gate",
        "run",
        "compare",
        "explain",
    ]
    for tool in tools.values():
        assert 40 < len(tool.description or "") < 300
        assert tool.input_schema["type"] == "object"
        assert "$ref" not in json.dumps(tool.input_schema)
    assert tools["answer"].input_schema["required"] == ["path"]
    changing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
    assert changing == {"gate", "run", "compare"}
    assert tools.keys() == TOOLS.keys()


def test_open_lists_files_and_recordings(agent: Agent) -> None:
    entries = agent.call("open").json["entries"]
    paths = [entry["path"] for entry in entries if "path" in entry]
    assert paths[:2] == [OTHER, TRACE]
    assert paths[2:] == [f"{RECORDINGS}{path.stem}" for path in bundled_recordings()]


def test_open_has_the_main_figures(agent: Agent, report: Any) -> None:
    opened = agent.call("open", path=TRACE).json
    for key in ("kind", "steps", "step_ns", "limit_ns", "bound", "tokens_per_s"):
        assert opened["answer"].get(key) == report["answer"][key]
    assert opened["rows"]["kernels"] == len(report["kernels"])
    assert opened["step_kinds"][0]["median_ns"] == report["step_kinds"][0]["median_ns"]


def test_answer_is_what_the_summary_prints(agent: Agent, folder: Path) -> None:
    text = agent.call("answer", path=TRACE).text
    whole = analyzer.analyze(analyzer.load(folder / TRACE)).report
    assert text == summary_text(whole)
    assert len(text.splitlines()) <= 30


def test_rows_have_the_figures_of_the_json(agent: Agent, report: Any) -> None:
    rows = agent.call("kernels", path=TRACE, count=3).json["kernels"]
    for row, kernel in zip(rows, report["kernels"], strict=False):
        assert {key: row[key] for key in ("count", "total_ns", "mean_ns")}.items() <= kernel.items()
    whole = agent.call("answer", path=TRACE, all_parts=True).json
    assert sum(part["ns"] for part in whole["parts"]) == whole["whole_ns"]
    assert [part["over_ns"] for part in whole["parts"] if "over_ns" in part] == [
        part["over_ns"] for part in report["answer"]["parts"] if part["over_ns"] is not None
    ]
    one = agent.call("kernels", path=TRACE, index=1).json
    assert one["shape"]["grid"] == report["kernels"][1]["shape"]["grid"]
    gaps = agent.call("gaps", path=TRACE).json
    device, whole = gaps["devices"][0], report["devices"][0]
    assert sum(device["gaps_total_ns"].values()) == device["idle_ns"] == whole["idle_ns"]
    assert gaps["gap_groups"][0]["total_ns"] == report["gap_groups"][0]["total_ns"]
    assert gaps["gap_group_count"] == report["gap_group_count"]
    longest = agent.call("gaps", path=TRACE, by="length", count=1).json["largest_gaps"][0]
    assert longest["length_ns"] == report["largest_gaps"][0]["length_ns"]
    layers = agent.call("layers", path=TRACE).json
    shown = [(row["layer"], row["ns_per_step"]) for row in layers["layers"]]
    assert shown == [(row["layer"], row["ns_per_step"]) for row in report["layers"]]
    ranges = agent.call("layers", path=TRACE, under="").json["ranges"]
    assert ranges[0]["gpu_ns"] == report["ranges"][0]["gpu_ns"]


def test_a_kernel_has_one_name_in_all_answers(agent: Agent) -> None:
    path = f"{RECORDINGS}h200-llama-3.2-1b-eager"
    names = {row["name"] for row in agent.call("kernels", path=path, count=60).json["kernels"]}
    groups = agent.call("gaps", path=path).json["gap_groups"]
    around = {name for group in groups for name in (group["prev"], group["next"])}
    ops = {line[35:] for line in agent.call("timeline", path=path).text.splitlines()[2:-1]}
    alike = {name for name in names if "·" in name}
    assert alike & around
    assert alike & ops
    assert {name for name in around | ops if name.startswith("nvjet")} <= names


def test_a_timeline_is_of_the_median_step_or_of_a_span(agent: Agent, report: Any) -> None:
    head, _, *lines = agent.call("timeline", path=TRACE).text.splitlines()
    assert f"step {report['answer']['step']}, from at_ns " in head
    assert head.endswith(f": {report['answer']['step_ns']:,} ns")
    at_ns = int(head.split(" from at_ns ")[1].split(":")[0])
    longest = report["largest_gaps"][0]
    begin_ns, gap_ns = longest["at_ns"], longest["length_ns"]
    head, _, *lines = agent.call(
        "timeline", path=TRACE, at_ns=begin_ns, span_ns=gap_ns
    ).text.splitlines()
    assert all("idle: " in line for line in lines)
    assert sum(float(line.split()[1].replace(",", "")) for line in lines) == pytest.approx(
        gap_ns / 1e3, abs=0.001 * len(lines)
    )
    assert at_ns >= 0


def test_a_timeline_has_streams_of_any_number(tmp_path: Path) -> None:
    events = [call(0, 5, 1), op(10, 20, 1, stream=-3), call(6, 9, 2), op(30, 40, 2, stream=7)]
    (tmp_path / "a.json").write_bytes(document(events))
    host = ToolHost([tmp_path], allow_write=False, allow_run=False)
    lines = timeline_tool(host, TimelineArguments("a.json")).splitlines()[2:]
    assert [line.split()[2] for line in lines] == ["-3", "idle:", "7"]


def test_a_fact_that_open_gets_holds_for_later_calls(agent: Agent) -> None:
    def limit_ns() -> int:
        limit: int = agent.call("open", path=RECORDING).json["answer"]["limit_ns"]
        return limit

    before = limit_ns()
    agent.call("open", path=RECORDING, peak="1TB/s")
    assert limit_ns() > 2 * before
    for facts, slower in (({"model": "auto"}, False), ({"peak": "1TB/s"}, True)):
        agent.call("open", path=RECORDING, **facts)
        assert (limit_ns() > 2 * before) == slower
    agent.call("open", path=RECORDING, model="auto")
    assert limit_ns() == before
    assert agent.call("open", path=RECORDING).json["capture"]["variant"] == "fused+graph"


def test_a_diff_has_the_ratio_and_the_parts(agent: Agent, report: Any) -> None:
    same = agent.call("diff", base=[TRACE], other=[TRACE]).json
    assert (same["ratio"], same["base_step_ns"]) == (1.0, report["answer"]["step_ns"])
    assert all(part["change_ns"] == 0 for part in same["parts"])
    other = agent.call("diff", base=[TRACE], other=[OTHER], rows="ranges").json
    assert other["verdict"] in ("faster", "slower", "no_difference_shown", "unknown")
    assert other["ranges"][0]["attributed_ns"]


def test_a_gate_judges_against_what_it_saved(agent: Agent, folder: Path) -> None:
    saved = agent.call("gate", paths=[TRACE], baseline="main", save=True).json
    assert saved["samples"][0]["steps"] > 1
    assert (folder / ".decodescope" / "baselines" / "main.json").is_file()
    judged = agent.call("gate", paths=[TRACE], baseline="main", allow=["2"]).json
    assert judged["verdict"] in ("within", "undecided")
    assert judged["rows"][0]["ratio"] == 1.0
    assert "did you mean main" in agent.call("gate", paths=[TRACE], baseline="mai").error
    link = folder / ".decodescope" / "baselines" / "link.json"
    link.symlink_to("/etc/hostname")
    for save in (True, False):
        error = agent.call("gate", paths=[TRACE], baseline="link", save=save).error
        assert "outside" in error


def test_an_error_that_nobody_foresaw_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(host: ToolHost, arguments: object) -> str:
        raise KeyError("x")

    failing = replace(TOOLS["explain"], call=fail)
    monkeypatch.setitem(TOOLS, "explain", failing)
    with agent_of(server_of(ToolHost([tmp_path], allow_write=False, allow_run=False))) as agent:
        assert "KeyError: 'x'; this is a fault of decodescope" in agent.call("explain").error
    assert "Traceback" in capsys.readouterr().err


def test_terms_and_recordings_are_resources(agent: Agent) -> None:
    assert agent.call("explain", term="step times").text.split("\n", 1)[1] == "\n".join(
        find_term("step time").definition.splitlines()
    )
    uris = [one.uri for one in agent.portal.call(agent.client.list_resources).resources]
    assert len(uris) == 1 + len(bundled_recordings())
    assert "Step time" in agent.resource("decodescope://terms").splitlines()
    assert agent.resource("decodescope://terms/step%20time").startswith("Step time\n")
    assert RECORDING in map(str, uris)
    assert agent.resource(RECORDING) == agent.call("answer", path=RECORDING).text
    for uri in ("decodescope://nope", "decodescope://terms/nope", f"{RECORDINGS}nope"):
        with pytest.raises(MCPError):
            agent.resource(uri)


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("answer", {}, "missing required field `path`"),
        ("answer", {"path": 7}, "Expected `str`"),
        ("answer", {"path": ["a"]}, "Expected `str`"),
        ("answer", {"path": "missing.json"}, "no such file below the folders"),
        ("answer", {"path": "../x"}, "has '..'"),
        ("answer", {"path": "/etc/passwd"}, "outside the folders"),
        ("answer", {"path": TRACE, "by": "x"}, "unknown field `by`"),
        ("kernels", {"path": TRACE, "count": "many"}, "Expected `int`"),
        ("kernels", {"path": TRACE, "offset": 10**6}, "offset 1000000: there are"),
        ("kernels", {"path": TRACE, "index": 10**6}, "index 1000000: there are"),
        ("kernels", {"path": TRACE, "offset": -1}, ">= 0"),
        ("gaps", {"path": TRACE, "by": "name"}, "Invalid enum value 'name'"),
        ("timeline", {"path": TRACE, "step": 10**6}, "step 1000000: there are"),
        ("timeline", {"path": TRACE, "device": 7, "at_ns": 0}, "device 7: there are 0"),
        ("diff", {"base": [], "other": [TRACE]}, "length >= 1"),
        ("open", {"path": TRACE, "model": "/etc/passwd"}, "outside the folders"),
        ("open", {"path": TRACE, "captures": ["/etc/passwd"]}, "outside the folders"),
        ("open", {"path": TRACE, "model": "no-such-model"}, "no model called"),
        ("explain", {"term": "no such term"}, "no term no such term"),
    ],
)
def test_bad_arguments_are_one_line(
    agent: Agent, tool: str, arguments: dict[str, Any], says: str
) -> None:
    error = agent.call(tool, **arguments).error
    assert error.startswith(f"{tool}: ")
    assert says in error


def test_an_unknown_tool_is_a_protocol_error(agent: Agent) -> None:
    with pytest.raises(MCPError, match="no tool nope: there are open, answer"):
        agent.call("nope")


def test_nothing_is_written_or_decoded_unless_allowed(tmp_path: Path) -> None:
    shutil.copy(DATA / TRACE, tmp_path / TRACE)
    with agent_of(server_of(ToolHost([tmp_path], allow_write=False, allow_run=False))) as agent:
        assert "--allow-write" in agent.call("gate", paths=[TRACE], baseline="b", save=True).error
        assert "--allow-run" in agent.call("run").error
        assert "--allow-run" in agent.call("compare", variants=["eager", "fused"]).error
    with agent_of(server_of(ToolHost([tmp_path], allow_write=False, allow_run=True))) as agent:
        assert "--allow-write" in agent.call("run", trace="window.json.gz").error
        assert (
            "--allow-write" in agent.call("compare", variants=["eager", "fused"], out="out").error
        )
        assert "outside the folders" in agent.call("run", model="/etc").error
    assert [path.name for path in tmp_path.iterdir()] == [TRACE]


@pytest.mark.parametrize(
    "name", [f"{RECORDINGS}h200-llama-3.2-1b-eager", TRACE, "mi300x_vllm_decode_graph.json.gz"]
)
def test_an_agent_finds_the_kernel_to_change(
    agent: Agent, name: str, foreign_traces: TraceFolder, folder: Path
) -> None:
    """From a folder to a kernel: at most four calls and 6,000 tokens."""
    if name.startswith("mi300x"):
        shutil.copy(foreign_traces / name, folder / name)
    opened = agent.call("open")
    path = next(row["path"] for row in opened.json["entries"] if row.get("path") == name)
    answer, kernels = agent.call("answer", path=path), agent.call("kernels", path=path, count=8)
    index = kernels.json["kernels"][0]["index"]
    kernel = agent.call("kernels", path=path, index=index)
    replies = (opened, answer, kernels, kernel)
    assert sum(reply.tokens for reply in replies) <= 6_000
    assert "→ " in answer.text
    assert kernel.json["total_ns"] > 0
    assert kernel.json["name"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    host = ToolHost([tmp_path], allow_write=False, allow_run=False)
    shutil.copy(DATA / TRACE, tmp_path / "a.json.gz")
    first = host.analysis("a.json.gz")
    assert host.analysis(str(tmp_path / "a.json.gz")) is first
    shutil.copy(DATA / OTHER, tmp_path / "a.json.gz")
    assert host.analysis("a.json.gz").report.source.events != first.report.source.events


def test_the_skill_names_what_there_is(repository: Path) -> None:
    _, head, text = (repository / "docs" / "agents.md").read_text().split("---\n", 2)
    assert [line.partition(": ")[0] for line in head.splitlines()] == ["name", "description"]
    assert len(text.split()) <= 450
    named = set(re.findall(r"`(\w+)`", text))
    assert {"answer", "diff", "explain", "gaps", "gate", "kernels", "layers", "open"} <= named
    keys = {"at_ns", "by", "index", "limit_is_lower_bound", "model", "next_offset", "offset"}
    keys |= {"batch", "trace"}
    bounds = set(get_args(Bound))
    words = {"faster", "slower", "undecided", "within"}
    assert named <= TOOLS.keys() | keys | bounds | words


def test_what_cannot_be_served_is_one_line(
    decodescope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = decodescope("mcp", str(tmp_path / "missing"))
    assert (done.code, "not a folder" in done.only_line) == (2, True)
    monkeypatch.setitem(sys.modules, "mcp", None)
    done = decodescope("mcp", str(tmp_path))
    assert (done.code, "pip install '.[mcp]'" in done.only_line) == (3, True)
