"""`attach` in the app, drawn once."""

from pathlib import Path

from tests.helpers.command import Command
from tests.helpers.libkineto import fake_process
from tests.helpers.servers.engines import Load, Vllm
from tests.helpers.servers.http_server import HttpServer
from tests.helpers.sockets import socket_folder

__all__ = ["socket_folder"]


def test_a_server_is_drawn_with_its_figures_and_no_window(
    decodescope: Command, tmp_path: Path
) -> None:
    with HttpServer(Vllm(tmp_path, Load())) as server:
        drawn = decodescope("attach", server.url, "--trace-dir", str(tmp_path), "--once")
        posts = [path for method, path in server.asked if method == "POST"]
    assert drawn.code == 0, drawn.err
    assert f"vLLM 0.32.0 at {server.url}, serving tiny" in drawn.out
    assert "8 running" in drawn.out
    assert "t takes a window of 300 ms" in drawn.out
    assert posts == []


def test_a_process_is_drawn_with_the_cost_of_a_window(
    decodescope: Command, socket_folder: str, tmp_path: Path
) -> None:
    with fake_process(socket_folder, "traces", KINETO_ONDEMAND_TRACE_DIR=str(tmp_path)) as running:
        arguments = ("--iterations", "7", "--once", "--page", "kernels")
        drawn = decodescope("attach", str(running.pid), *arguments)
    assert drawn.code == 0, drawn.err
    assert f"process {running.pid}" in drawn.out
    assert "t takes a window of 7 steps: a window slows a process" in drawn.out
    assert list(tmp_path.iterdir()) == []


def test_the_app_and_printed_reports_exclude_each_other(decodescope: Command) -> None:
    for option in (("--json",), ("--windows", "2")):
        refused = decodescope("attach", "4711", "--once", *option)
        assert refused.code == 2
        assert "leave out --windows and --json" in refused.err


def test_a_pause_is_between_windows(decodescope: Command) -> None:
    refused = decodescope("attach", "4711", "--every", "5")
    assert refused.code == 2
    assert "--every 5: only with --windows" in refused.err
