"""Windows of servers through their profile endpoints, and what they leave behind."""

import gzip
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.readers.reading import load as load_file
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers import server_door
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.servers.engine import recognise
from decodescope.attach.servers.server_door import Pace, ServerDoor
from tests.helpers.servers.engines import COMPLETION, TRACE, Clock, Load, Sglang, Vllm
from tests.helpers.servers.http_server import Answering, HttpServer, Reply, Request, as_json

PROFILE = {"/start_profile", "/stop_profile"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """A load whose clock is the door's."""
    clock = Clock()
    monkeypatch.setattr(server_door, "time", clock)
    return Load(clock)


@pytest.fixture
def serve() -> Iterator[Callable[[Answering], HttpServer]]:
    servers = []

    def start(answer: Answering) -> HttpServer:
        servers.append(HttpServer(answer))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.kill()


Serve = Callable[[Answering], HttpServer]


def door_to(server: HttpServer, trace_dir: Path | None, files_s: float = 20.0) -> ServerDoor:
    client = ServerClient(parse_address(server.url))
    return ServerDoor(client, recognise(client), trace_dir, Pace(files_s=files_s))


def profile_requests(server: HttpServer) -> list[str]:
    return [path for _, path in server.asked if path in PROFILE]


def test_a_window_of_vllm(tmp_path: Path, load: Load, serve: Serve) -> None:
    server = serve(Vllm(tmp_path, load))
    said: list[str] = []
    door = door_to(server, tmp_path)
    window = door.window(WindowPlan(tmp_path / "unused", 300), said.append)
    assert [path.name for path in window.traces] == [
        "rank0.1.pt.trace.json.gz",
        "rank1.1.pt.trace.json.gz",
    ]
    assert len(load_file(window.traces[0]).ops) == len(load_file(TRACE).ops)
    observer = window.observer
    assert (observer.door, observer.target) == ("vllm", door.target)
    assert observer.before_tokens_per_s == pytest.approx(1000.0)
    assert observer.during_tokens_per_s == pytest.approx(600.0)
    assert observer.after_tokens_per_s == pytest.approx(900.0)
    assert profile_requests(server) == ["/start_profile", "/stop_profile"]
    assert "records 300 ms" in said
    start = next(request for request in server.requests if request.path == "/start_profile")
    assert start.body == b'{"max_iterations":38}'  # 1,000 tokens/s of 8 requests are 125 steps/s
    assert load.clock.now_s == pytest.approx(1000 + 1 + 0.3 + 1)


def test_a_window_of_milliseconds_may_have_some_steps_whatever_was_measured(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    load.per_s = 10.0
    server = serve(Vllm(tmp_path, load))
    door_to(server, tmp_path).window(WindowPlan(tmp_path, 300), lambda line: None)
    start = next(request for request in server.requests if request.path == "/start_profile")
    assert start.body == b'{"max_iterations":20}'


def test_a_second_window_has_files_of_its_own(tmp_path: Path, load: Load, serve: Serve) -> None:
    door = door_to(serve(Vllm(tmp_path, load)), tmp_path)
    windows = [door.window(WindowPlan(tmp_path, 100), lambda line: None) for _ in range(3)]
    files = [path for window in windows for path in window.traces]
    assert len(set(files)) == 6


def test_a_window_of_steps_ends_by_the_steps_that_the_server_counts(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Vllm(tmp_path, load))
    door_to(server, tmp_path).window(WindowPlan(tmp_path, 1, iterations=30), lambda line: None)
    # 600 tokens/s of 8 requests are 75 steps/s: 30 steps take 0.4 s, seen every 0.1 s.
    assert load.clock.now_s == pytest.approx(1000 + 1 + 0.4 + 1, abs=0.11)
    start = next(request for request in server.requests if request.path == "/start_profile")
    assert start.body == b'{"max_iterations":30}'


def test_steps_that_never_come_have_a_limit_and_are_said(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    load.in_window_per_s = 0.0
    server = serve(Vllm(tmp_path, load))
    said: list[str] = []
    door_to(server, tmp_path).window(WindowPlan(tmp_path, 1, 30), said.append)
    assert "the server has not done 30 steps within 30 s" in said
    assert profile_requests(server) == ["/start_profile", "/stop_profile"]


def test_other_answers_of_the_server_are_unchanged(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    answers = []
    vllm = Vllm(tmp_path, load)

    def complete() -> None:
        answers.append(ServerClient(parse_address(server.url)).post("/v1/completions", {}).body)

    def on_metrics(_: Vllm) -> None:
        if load.recording:
            complete()

    server = serve(vllm)
    door = door_to(server, tmp_path)
    complete()
    vllm.on_metrics = on_metrics
    door.window(WindowPlan(tmp_path, 100), lambda line: None)
    vllm.on_metrics = lambda _: None
    complete()
    assert len(answers) == 4  # before, two in the window, after
    assert set(answers) == {as_json(COMPLETION).body}
    ours = {pair for pair in server.asked if pair[1] != "/v1/completions"}
    assert {path for method, path in ours if method == "POST"} == PROFILE


def test_without_its_profiler_vllm_is_told_how_to_start(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Vllm(None, load))
    with pytest.raises(MissingRequirement, match="start it with --profiler-config") as caught:
        door_to(server, tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert '\'{"profiler":"torch","torch_profiler_dir":"DIR"}\'' in str(caught.value)
    assert profile_requests(server) == ["/start_profile"]


def test_a_window_of_another_client_is_left_alone(tmp_path: Path, load: Load, serve: Serve) -> None:
    server = serve(Vllm(tmp_path, load))
    load.start()
    with pytest.raises(MissingRequirement, match="another client records a window"):
        door_to(server, tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert load.recording
    assert profile_requests(server) == ["/start_profile"]


@pytest.mark.parametrize("trace_dir", [None, Path("/nowhere/traces")])
def test_an_unknown_trace_folder_is_said_before_the_window(
    trace_dir: Path | None, tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Vllm(tmp_path, load))
    with pytest.raises(InputError, match="--trace-dir"):
        door_to(server, trace_dir).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert profile_requests(server) == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_server_that_tells_its_trace_folder_needs_no_option(
    is_late: bool, tmp_path: Path, load: Load, serve: Serve
) -> None:
    """Also where its first answer takes longer than a request may."""
    vllm, late = Vllm(tmp_path, load), iter((is_late,))

    def answer(request: Request) -> Reply:
        if request.path == "/server_info?config_format=json":
            if next(late, False):
                return Reply(raw=b"")
            profiler = {"profiler": "torch", "torch_profiler_dir": str(tmp_path)}
            return as_json({"vllm_config": {"profiler_config": profiler}})
        return vllm(request)

    door = door_to(serve(answer), None)
    assert len(door.window(WindowPlan(tmp_path / "x", 100), lambda line: None).traces) == 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError("a fault")])
def test_a_window_is_stopped_whatever_happens(
    error: type[BaseException] | Exception,
    tmp_path: Path,
    load: Load,
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = serve(Vllm(tmp_path, load))
    door = door_to(server, tmp_path)

    def interrupted(seconds: float) -> None:
        if load.recording:
            raise error

    monkeypatch.setattr(load.clock, "sleep", interrupted)
    with pytest.raises((KeyboardInterrupt, InputError)):
        door.window(WindowPlan(tmp_path, 100), lambda line: None)
    assert not load.recording
    assert profile_requests(server) == ["/start_profile", "/stop_profile"]


def test_a_start_without_an_answer_is_stopped_too(tmp_path: Path, load: Load, serve: Serve) -> None:
    vllm = Vllm(tmp_path, load)

    def answer(request: Request) -> Reply:
        reply = vllm(request)
        return Reply(raw=b"") if request.path == "/start_profile" else reply

    server = serve(answer)
    with pytest.raises(MissingRequirement, match="closed the connection"):
        door_to(server, tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert not load.recording


def test_a_stop_that_fails_is_tried_again_and_said(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    vllm = Vllm(tmp_path, load)

    def answer(request: Request) -> Reply:
        return Reply(b"disk", 500) if request.path == "/stop_profile" else vllm(request)

    server = serve(answer)
    with pytest.raises(MissingRequirement, match="/stop_profile: the server answers 500: disk"):
        door_to(server, tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert profile_requests(server) == ["/start_profile", "/stop_profile", "/stop_profile"]


def test_a_server_that_dies_in_a_window_is_one_line(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    vllm = Vllm(tmp_path, load)

    def answer(request: Request) -> Reply:
        return Reply(raw=b"") if load.recording and request.method == "GET" else vllm(request)

    with pytest.raises(MissingRequirement, match="see whether it still runs"):
        door_to(serve(answer), tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)


def test_a_server_that_restarts_in_a_window_is_said(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    vllm = Vllm(tmp_path, load)
    load.generated = 1e6

    def on_metrics(_: Vllm) -> None:
        if load.recording:
            load.generated /= 2

    vllm.on_metrics = on_metrics
    with pytest.raises(MissingRequirement, match="restarted during the window; take another"):
        door_to(serve(vllm), tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)


def test_one_window_at_a_time(tmp_path: Path, load: Load, serve: Serve) -> None:
    vllm = Vllm(tmp_path, load)
    door = door_to(serve(vllm), tmp_path)
    refused: list[str] = []

    def again() -> None:
        try:
            door.window(WindowPlan(tmp_path, 100), lambda line: None)
        except DecodescopeError as error:
            refused.append(str(error))

    def on_metrics(_: Vllm) -> None:
        if load.recording and not refused:
            thread = threading.Thread(target=again)
            thread.start()
            thread.join()

    vllm.on_metrics = on_metrics
    assert len(door.window(WindowPlan(tmp_path, 100), lambda line: None).traces) == 2
    assert refused == [f"{door.target}: a window is open already; wait for its end"]
    assert len(door.window(WindowPlan(tmp_path, 100), lambda line: None).traces) == 2


def test_no_trace_and_half_a_trace_are_one_line(tmp_path: Path, load: Load, serve: Serve) -> None:
    elsewhere, full = tmp_path / "elsewhere", tmp_path / "full"
    elsewhere.mkdir()
    full.mkdir()
    vllm = Vllm(full, load)
    with pytest.raises(MissingRequirement, match=r"no trace came within 0\.3 s"):
        door_to(serve(vllm), elsewhere, 0.3).window(WindowPlan(full, 100), lambda line: None)

    def answer(request: Request) -> Reply:
        reply = vllm(request)
        if request.path == "/stop_profile":
            for path in full.glob("*.gz"):
                path.write_bytes(TRACE.read_bytes()[:3000])
        return reply

    with pytest.raises(MissingRequirement, match=r"is not whole 0\.3 s after the window; see"):
        door_to(serve(answer), full, 0.3).window(WindowPlan(full, 100), lambda line: None)


def test_a_trace_that_still_grows_is_waited_for(tmp_path: Path, load: Load, serve: Serve) -> None:
    vllm = Vllm(tmp_path, load)
    data = gzip.decompress(TRACE.read_bytes())
    threads = []

    def grow() -> None:
        with (tmp_path / "late.pt.trace.json").open("wb", buffering=0) as file:
            for part in range(4):
                file.write(data[part * len(data) // 4 : (part + 1) * len(data) // 4])
                threading.Event().wait(0.1)

    def answer(request: Request) -> Reply:
        reply = vllm(request)
        if request.path == "/stop_profile":
            threads.append(threading.Thread(target=grow))
            threads[-1].start()
            while not (tmp_path / "late.pt.trace.json").exists():
                threading.Event().wait(0.01)
        return reply

    window = door_to(serve(answer), tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    threads[0].join()
    assert (tmp_path / "late.pt.trace.json").read_bytes() == data
    assert tmp_path / "late.pt.trace.json" in window.traces


@pytest.mark.parametrize("v2", [False, True])
def test_a_window_of_sglang_takes_both_of_its_profilers(
    v2: bool, tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang = Sglang(v2, load)
    server = serve(sglang)
    plan = WindowPlan(tmp_path / "window", 400)
    window = door_to(server, None).window(plan, lambda line: None)
    assert [path.parent for path in window.traces] == [plan.folder] * 2
    assert ["TP-0" in window.traces[0].name, "TP-1" in window.traces[1].name] == [True, True]
    assert window.observer.door == "sglang"
    assert window.observer.before_tokens_per_s == pytest.approx(1000.0)
    assert window.observer.during_tokens_per_s == pytest.approx(600.0)
    assert window.observer.after_tokens_per_s == pytest.approx(900.0)
    assert not sglang.is_dead
    assert not sglang.waits_for_prefill
    assert profile_requests(server) == (
        ["/start_profile"] if v2 else ["/start_profile", "/stop_profile"]
    )


def test_the_steps_of_sglangs_window_follow_from_its_metrics(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Sglang(load=load))
    door = door_to(server, tmp_path)
    for plan in (WindowPlan(tmp_path, 400), WindowPlan(tmp_path, 400, iterations=7)):
        door.window(plan, lambda line: None)
    first, second = (
        request.body for request in server.requests if request.path == "/start_profile"
    )
    assert b'"num_steps":50,' in first  # 1,000 tokens/s of 8 requests are 125 steps/s
    assert b'"num_steps":7,' in second


def test_sglang_is_never_asked_to_stop_before_its_profiler_is_known(
    tmp_path: Path, load: Load, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends a server of the newer profiler; the window ends by itself."""
    sglang = Sglang(True, load)
    door = door_to(serve(sglang), tmp_path)

    def interrupted(seconds: float) -> None:
        if load.recording:
            raise KeyboardInterrupt

    monkeypatch.setattr(server_door.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        door.window(WindowPlan(tmp_path, 400, 9999), lambda line: None)
    assert not sglang.is_dead
    # A second window at once would end it too.
    with pytest.raises(MissingRequirement, match="the last window has not ended; it ends after"):
        door.window(WindowPlan(tmp_path, 400), lambda line: None)
    assert not sglang.is_dead
    load.clock.now_s += 1000
    door.metrics()
    assert len(door.window(WindowPlan(tmp_path, 400), lambda line: None).traces) == 2


def test_after_a_refusal_sglang_may_be_asked_again(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang, refusals = Sglang(load=load), iter((Reply(b"in progress", 500),))

    def answer(request: Request) -> Reply:
        refusal = next(refusals, None) if request.path == "/start_profile" else None
        return sglang(request) if refusal is None else refusal

    door = door_to(serve(answer), tmp_path)
    with pytest.raises(MissingRequirement, match="answers 500: in progress"):
        door.window(WindowPlan(tmp_path, 400), lambda line: None)
    assert len(door.window(WindowPlan(tmp_path, 400), lambda line: None).traces) == 2


def test_a_window_is_not_lost_by_a_server_that_ends_after_it(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang = Sglang(load=load)

    def answer(request: Request) -> Reply:
        sglang.is_dead = sglang.is_dead or request.path == "/stop_profile"
        return sglang(request)

    window = door_to(serve(answer), tmp_path).window(WindowPlan(tmp_path, 400), lambda line: None)
    assert len(window.traces) == 2
    assert window.observer.after_tokens_per_s is None
