"""A door that is closed by another thread ends its window, and leaves the target as it was."""

import os
import threading
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import read_process
from decodescope.attach.servers import server_door
from tests.helpers.libkineto import fake_process
from tests.helpers.servers.doors import open_server
from tests.helpers.servers.engines import Clock, Load, Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request


def test_a_server_does_not_go_on_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(server_door, "time", clock)
    load = Load(clock)
    with HttpServer(Vllm(tmp_path, load)) as server:
        door = open_server(server.url, tmp_path)

        def close_while_it_records(stage: str) -> None:
            if stage.startswith("records"):
                door.close()

        with pytest.raises(DecodescopeError, match="left before the end of the window"):
            door.window(WindowPlan(tmp_path, 10_000), close_while_it_records)
        posts = [path for method, path in server.asked if method == "POST"]
    assert posts == ["/start_profile", "/stop_profile"]
    assert not load.recording
    assert clock.now_s < 1003


def test_a_server_that_still_starts_a_window_is_sent_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first window loads the profiler's library in each rank, which takes long."""
    clock = Clock()
    monkeypatch.setattr(server_door, "time", clock)
    vllm = Vllm(tmp_path, Load(clock))
    ended, ended_in_time = threading.Event(), Future[bool]()

    def answer(request: Request) -> Reply:
        if request.path == "/start_profile":
            door.close()
            ended_in_time.set_result(ended.wait(1))
        elif request.path == "/stop_profile":
            ended.set()
        return vllm(request)

    with HttpServer(answer) as server:
        door = open_server(server.url, tmp_path)
        with pytest.raises(DecodescopeError, match="left before the end of the window"):
            door.window(WindowPlan(tmp_path, 50), lambda stage: None)
        assert ended_in_time.result(5)


def test_a_process_is_no_longer_waited_for(socket_folder: str, tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    folder = tmp_path / "traces"
    folder.mkdir()
    variables = {"KINETO_ONDEMAND_TRACE_DIR": str(folder)}
    with fake_process(socket_folder, "never_asks", **variables) as running:
        process = read_process(running.pid)
        assert process is not None
        door = KinetoDoor([process])
        waits = threading.Timer(0.3, door.close)
        waits.start()
        began_s = time.monotonic()
        with pytest.raises(DecodescopeError, match="left before the end of the window"):
            door.window(WindowPlan(tmp_path, 50), lambda stage: None)
        assert time.monotonic() - began_s < 5
        waits.join()
        assert running.poll() is None
    assert list(folder.iterdir()) == []
    assert set(os.listdir("/proc/self/fd")) == before
