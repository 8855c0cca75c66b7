"""Several servers behind one door: one window of all, and each that vanishes, hangs or returns."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers import group_door, opening, server_door, windows
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import EngineServer, recognise
from decodescope.attach.servers.figures import figures
from decodescope.attach.servers.group_door import GroupDoor
from decodescope.attach.servers.opening import open_servers
from decodescope.attach.servers.server_door import ServerDoor
from decodescope.attach.servers.tokens import Token
from tests.helpers.scripted_door import ScriptedDoor, metrics
from tests.helpers.servers.doors import open_server
from tests.helpers.servers.engines import Sglang, llama_cpp
from tests.helpers.servers.http_server import HttpServer, Reply, Request
from tests.helpers.servers.replicas import QUICK, Servers, servers


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Servers]:
    with servers(tmp_path) as running:
        yield running


def silent(stage: str) -> None:
    """Nobody looks at the stages."""


def test_a_window_of_all_begins_at_one_moment(two: Servers, tmp_path: Path) -> None:
    """All are asked before one has answered."""
    stages: list[str] = []
    two.replicas[0].together = two.replicas[1].together = threading.Barrier(2)
    with two.door(20.0) as door:
        window = door.window(WindowPlan(tmp_path, 30), stages.append)
    assert [path.parent for path in window.traces] == two.folders
    assert [part.figures.name for part in window.servers] == two.names
    assert all(part.paths and not part.problem for part in window.servers)
    parts = [part.observer for part in window.servers if part.observer is not None]
    assert len(parts) == 2
    assert window.observer.door == "servers"
    assert window.observer.during_tokens_per_s == pytest.approx(
        sum(part.during_tokens_per_s or 0 for part in parts)
    )
    assert window.group is not None
    assert window.group.generated_per_s == pytest.approx(2000, rel=0.5)
    assert f"{two.names[1]}: records 30 ms" in stages
    assert not any(replica.load.recording for replica in two.replicas)


def test_one_waits_for_the_other_before_its_window(two: Servers, tmp_path: Path) -> None:
    """A server whose metrics come late is not recorded later than the others."""
    late, answered_s = two.replicas[1], []

    def answers() -> None:
        answered_s.append(time.time())
        late.hangs.set()

    def measures(stage: str) -> None:
        if stage == f"{two.names[1]}: measures tokens/s before the window":
            late.hangs.clear()
            threading.Timer(0.4, answers).start()

    with two.door() as door:
        door.window(WindowPlan(tmp_path, 10), measures)
    (late_s,) = answered_s
    assert all(replica.began_s >= late_s for replica in two.replicas)


def test_one_that_vanishes_does_not_end_the_others(two: Servers, tmp_path: Path) -> None:
    stages: list[str] = []
    with two.door() as door:
        first = door.metrics()
        two.https[0].kill()
        found = figures(first, door.metrics())
        assert "nothing listens there" in found.servers[0].problem
        assert found.servers[1].running == 8.0
        assert found.generated_per_s == found.servers[1].generated_per_s
        window = door.window(WindowPlan(tmp_path, 10), stages.append)
        assert [path.parent for path in window.traces] == two.folders[1:]
        assert "nothing listens there" in window.servers[0].problem
        assert any(stage.startswith(f"no window of {two.names[0]}: http") for stage in stages)
        two.https[1].kill()
        with pytest.raises(MissingRequirement, match="nothing listens there"):
            door.metrics()
        with pytest.raises(DecodescopeError, match="nothing listens there"):
            door.window(WindowPlan(tmp_path, 10), silent)


def test_one_that_hangs_is_not_asked_again_and_found_when_it_answers(
    two: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, waited_s = two.replicas[0], list[float]()
    with two.door(answer_s=0.2) as door:
        member = door._members[0]

        def wait_for(asking: list[Future[None]], seconds: float) -> None:
            """Wait for a server that answers as long as the machine takes."""
            if slow.hangs.is_set() or asking != [member._asking]:
                wait(asking)
            else:
                waited_s.append(seconds)

        monkeypatch.setattr(group_door, "wait", wait_for)
        first = door.metrics()
        slow.hangs.clear()
        for _ in range(2):
            found = figures(first, door.metrics())
            assert (
                found.servers[0].problem
                == f"{two.names[0]}: has not answered yet; it is waited for"
            )
            assert found.servers[1].running == 8.0
        slow.hangs.set()
        member._asking.result(10)
        asked = [path for _, path in two.https[0].asked].count("/metrics")
        found = figures(first, door.metrics())
        assert found.servers[0].running == 8.0
    assert waited_s == [pytest.approx(0.1, abs=0.1), 0]
    # Once when it was recognised, once before, and once while it hung.
    assert asked == 3


def test_a_server_without_windows_is_measured_beside_one_that_has(
    two: Servers, tmp_path: Path
) -> None:
    with HttpServer(llama_cpp) as other:
        doors = [two.doors()[0], open_server(other.url, None)]
        with GroupDoor(doors, observe_s=0.05) as door:
            assert door.has_windows
            assert "24 to 44 %" in door.cost
            assert door.target.startswith("2 servers: vLLM 0.32.0 at http://127.0.0.1:")
            window = door.window(WindowPlan(tmp_path, 10), silent)
    assert len(window.traces) == 1
    assert window.group is not None
    assert window.group.servers[1].running == 1.0
    assert "has no profile endpoint" in window.servers[1].problem


def test_servers_that_share_a_folder_are_refused_before_a_window(
    two: Servers, tmp_path: Path
) -> None:
    with open_servers(two.urls, [two.folders[0]] * 2, None, silent) as door:
        assert figures(None, door.metrics()).running == 16.0
        with pytest.raises(InputError, match="cannot be told apart; give each server a folder"):
            door.window(WindowPlan(tmp_path, 10), silent)
    assert not any(method == "POST" for server in two.https for method, _ in server.asked)


def test_one_that_never_names_its_trace_folder_is_left_out(
    two: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LIMIT_S", 0.5)
    left, said = threading.Event(), list[str]()

    def answer(request: Request) -> Reply:
        if request.path.startswith("/server_info"):
            left.wait(20)
        return two.replicas[0](request)

    with HttpServer(answer) as slow:
        client = ServerClient(parse_address(slow.url))
        doors = [ServerDoor(client, recognise(client), None, QUICK), two.doors()[1]]
        with GroupDoor(doors, observe_s=0.05) as door:
            window = door.window(WindowPlan(tmp_path, 10), said.append)
            assert not left.is_set()
            left.set()
    assert [path.parent for path in window.traces] == two.folders[1:]
    assert "name the folder of its torch_profiler_dir" in window.servers[0].problem
    waits = f"{doors[0].name}: waits up to 0.5 s for the server to name its trace folder"
    assert said.count(waits) == 1


def test_closing_leaves_a_server_that_does_not_name_its_trace_folder(
    two: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = threading.Event()
    monkeypatch.setattr(ServerDoor, "trace_folder", lambda *_: named.wait(20))
    door = two.door()
    monkeypatch.setattr(door, "_observed", door.close)
    with pytest.raises(DecodescopeError, match="left before the window"):
        door.window(WindowPlan(tmp_path, 10), silent)
    assert not named.is_set()
    named.set()


def test_one_that_is_down_at_first_is_found_when_it_comes_up(
    two: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_door, "Pace", lambda: QUICK)
    is_up, said = threading.Event(), list[str]()

    def answer(request: Request) -> Reply:
        return two.replicas[1](request) if is_up.is_set() else Reply(b"loading", 503)

    with HttpServer(answer) as late:
        why = f"{late.url}/v1/models: the server answers 503: loading; its log says why"
        urls, first = [two.urls[0], late.url], f"2 servers: vLLM 0.32.0 at {two.urls[0]}"
        with open_servers(urls, two.folders, None, said.append) as door:
            assert said == [f"attached without {why}"]
            assert door.target.startswith(first)
            assert door.target.endswith(f"; a server that does not answer at {late.url}")
            found = figures(None, door.metrics())
            assert (found.running, found.servers[1].problem) == (8.0, why)
            window = door.window(WindowPlan(tmp_path, 10), silent)
            assert [part.problem for part in window.servers] == ["", why]
            is_up.set()
            window = door.window(WindowPlan(tmp_path, 10), silent)
            assert [path.parent for path in window.traces] == two.folders
            assert door.target.startswith(first)
            assert door.target.endswith(f"; vLLM 0.32.0 at {late.url}, serving tiny")
            assert figures(None, door.metrics()).running == 16.0
        is_up.clear()
        two.https[0].kill()
        with pytest.raises(MissingRequirement, match="nothing listens there"):
            open_servers(urls, two.folders, None, said.append)
    assert len(said) == 1


def test_one_whose_answers_nobody_foresaw_ends_no_other(
    two: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    recognised = opening.recognise

    def recognise(client: ServerClient) -> EngineServer:
        if client.address.url == two.urls[1]:
            raise ArithmeticError("a fault of ours")
        return recognised(client)

    monkeypatch.setattr(opening, "recognise", recognise)
    said = list[str]()
    with open_servers(two.urls, two.folders, None, said.append) as door:
        assert door.target.startswith(f"2 servers: vLLM 0.32.0 at {two.urls[0]}")
    assert [line for line in said if "a fault of ours" in line] == said


def test_only_one_that_was_down_has_windows(two: Servers, tmp_path: Path) -> None:
    """It is found by the window itself; the model is that of those that answer."""
    client = ServerClient(parse_address(two.urls[0]))
    down = EngineServer("unknown", None, None, None, None, problem="nothing listens there")
    with HttpServer(llama_cpp) as other:
        doors = [open_server(other.url, None), ServerDoor(client, down, two.folders[0], QUICK)]
        with GroupDoor(doors, observe_s=0.05) as door:
            assert not door.has_windows
            assert "nothing listens there" in door.cost
            assert len(door.window(WindowPlan(tmp_path, 10), silent).traces) == 1


def test_the_model_is_that_of_those_that_answer(tmp_path: Path) -> None:
    doors = [
        ScriptedDoor(tmp_path, name=name, served=served, is_known=served is not None)
        for name, served in (("a", "tiny"), ("b", None))
    ]
    assert GroupDoor(doors).model == "tiny"
    assert GroupDoor([*doors, ScriptedDoor(tmp_path, name="c", served="other")]).model is None


def test_urls_and_folders_that_do_not_fit_are_one_line(two: Servers, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="named twice"):
        open_servers([two.urls[0], f"{two.urls[0]}/v1"], [], None, silent)
    with pytest.raises(InputError, match=r"give one for each URL, .* these are 1 for 2"):
        open_servers(two.urls, [tmp_path], None, silent)


def test_a_token_that_others_can_read_on_its_way_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent_one = EngineServer("unknown", None, None, None, None, problem="silent")
    monkeypatch.setattr(opening, "recognise", lambda client: silent_one)
    remote, here = "http://10.0.0.9:8000", ["http://127.0.0.1:1", "http://[::1]:2"]
    safe = ["https://10.0.0.9:8001", "http://localhost:3", *here]
    line = f"the token goes unencrypted to {remote}; use https, or a tunnel"
    for urls, token, lines in (
        ([remote], Token("Bearer t"), [line]),
        ([remote, *safe], Token("Bearer t"), [line]),
        (safe, Token("Bearer t"), []),
        ([remote, *safe], None, []),
    ):
        said = list[str]()
        with open_servers(urls, [], token, said.append):
            assert said == lines


def test_closing_ends_the_windows_of_all(two: Servers, tmp_path: Path) -> None:
    door = two.door()

    def close_while_it_records(stage: str) -> None:
        if stage.endswith("records 10000 ms"):
            door.close()

    with pytest.raises(DecodescopeError, match="left before the end of the window"):
        door.window(WindowPlan(tmp_path, 10_000), close_while_it_records)
    assert not any(replica.load.recording for replica in two.replicas)


def test_an_interruption_ends_the_windows_of_all(two: Servers, tmp_path: Path) -> None:
    begun = threading.Barrier(2, lambda: os.kill(os.getpid(), signal.SIGINT))

    def interrupt(stage: str) -> None:
        if stage.endswith("records 10000 ms"):
            begun.wait(10)

    door = two.door()
    with pytest.raises(KeyboardInterrupt):
        door.window(WindowPlan(tmp_path, 10_000), interrupt)
    assert not any(replica.load.recording for replica in two.replicas)
    for server in two.https:
        assert [path for method, path in server.asked if method == "POST"][-1] == "/stop_profile"


def test_servers_that_are_told_a_folder_get_one_each(tmp_path: Path) -> None:
    with HttpServer(Sglang()) as first, HttpServer(Sglang(v2=True)) as second:
        clients = [ServerClient(parse_address(server.url)) for server in (first, second)]
        doors = [ServerDoor(client, recognise(client), None, QUICK) for client in clients]
        with GroupDoor(doors, observe_s=0.05) as door:
            window = door.window(WindowPlan(tmp_path, 10, iterations=5), silent)
    folders = [tmp_path / f"127.0.0.1-{server.port}" for server in (first, second)]
    assert [path.parent for path in window.traces] == [
        folders[0],
        folders[0],
        folders[1],
        folders[1],
    ]
    assert all("-decode." in path.name.lower() for path in window.traces)


class Another(ScriptedDoor):
    """A server that is another one after each look."""

    def look_again(self) -> None:
        self.name = f"{self.name}'"


def test_one_that_was_silent_or_restarted_is_looked_at_again(tmp_path: Path) -> None:
    first, second = Another(tmp_path, name="a"), Another(tmp_path, name="b")
    first.answers = [metrics(1), "gone", metrics(2), metrics(3)]
    second.answers = [metrics(1), metrics(2), metrics(3, 5.0), metrics(4)]
    with GroupDoor([first, second]) as door:
        for targets in ("a; b", "a; b", "a'; b", "a'; b'", "a'; b'"):
            door.metrics()
            assert door.target == f"2 servers: {targets}"
        door.look_again()
        door.metrics()
        assert door.target == "2 servers: a''; b''"
