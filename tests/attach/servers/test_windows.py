"""Windows of servers through their profile endpoints, and what they leave behind."""

import gzip
import re
import threading
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.readers.reading import load as load_file
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers import windows
from decodescope.attach.servers.address import parse_address
from decodescope.attach.servers.client import ServerClient
from decodescope.attach.taking import take_window
from tests.helpers.servers.doors import PROFILE, Serve, door_to, profile_requests
from tests.helpers.servers.engines import COMPLETION, TRACE, Load, Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request, as_json


def started_with(server: HttpServer) -> bytes:
    return next(one.body for one in server.requests if one.path == "/start_profile")


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
    assert (
        started_with(server) == b'{"max_iterations":38}'
    )  # 1,000 tokens/s of 8 requests are 125 steps/s
    assert load.clock.now_s == pytest.approx(1000 + 1 + 0.3 + 1)


def test_a_window_of_milliseconds_may_have_some_steps_whatever_was_measured(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    load.per_s = 10.0
    server = serve(Vllm(tmp_path, load))
    door_to(server, tmp_path).window(WindowPlan(tmp_path, 300), lambda line: None)
    assert started_with(server) == b'{"max_iterations":20}'


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
    assert started_with(server) == b'{"max_iterations":30}'


def test_steps_that_never_come_have_a_limit_and_are_said(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    load.in_window_per_s = 0.0
    server = serve(Vllm(tmp_path, load))
    said: list[str] = []
    door_to(server, tmp_path, steps_s=4.0).window(WindowPlan(tmp_path, 1, 30), said.append)
    assert "the server has not done 30 steps within 4 s" in said
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


START = """start it with --profiler-config '{"profiler":"torch","torch_profiler_dir":"DIR"}'"""


@pytest.mark.parametrize(
    ("others", "says"), [(False, START), (True, "another client records a window")]
)
def test_without_its_profiler_or_in_a_window_of_another_client_vllm_is_left_alone(
    others: bool, says: str, tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Vllm(tmp_path if others else None, load))
    if others:
        load.start()
    with pytest.raises(MissingRequirement, match=re.escape(says)):
        door_to(server, tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert load.recording == others
    assert profile_requests(server) == ["/start_profile"]


@pytest.mark.parametrize("trace_dir", [None, Path("/nowhere/traces")])
def test_an_unknown_trace_folder_is_said_before_the_window(
    trace_dir: Path | None, tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Vllm(tmp_path, load))
    with pytest.raises(InputError, match="--trace-dir"):
        door_to(server, trace_dir).window(WindowPlan(tmp_path, 100), lambda line: None)
    assert profile_requests(server) == []


@pytest.mark.parametrize("is_told", [False, True])
def test_a_server_that_tells_its_trace_folder_needs_no_option(
    is_told: bool, tmp_path: Path, load: Load, serve: Serve
) -> None:
    """It is asked once, and only where no option names the folder: its first answer takes it
    seconds, for which only the opening of a window waits."""
    vllm, answers, were_in_time = Vllm(tmp_path, load), threading.Event(), list[bool]()
    path = "/server_info?config_format=json"

    def answer(request: Request) -> Reply:
        if request.path == path:
            were_in_time.append(answers.wait(20))
            profiler = {"profiler": "torch", "torch_profiler_dir": str(tmp_path)}
            return as_json({"vllm_config": {"profiler_config": profiler}})
        return vllm(request)

    server = serve(answer)
    door = door_to(server, tmp_path if is_told else None)
    assert door.metrics().running == 8.0

    def say(stage: str) -> None:
        if stage == "measures tokens/s before the window":
            answers.set()

    assert len(door.window(WindowPlan(tmp_path / "x", 100), say).traces) == 2
    assert were_in_time == [True] * (not is_told)
    assert [asked for _, asked in server.asked].count(path) == (not is_told)


def test_a_server_that_never_names_its_trace_folder_is_waited_for_once(
    tmp_path: Path, load: Load, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LIMIT_S", 0.2)
    vllm, left, said = Vllm(tmp_path, load), threading.Event(), list[str]()

    def answer(request: Request) -> Reply:
        if request.path.startswith("/server_info"):
            left.wait(20)
        return vllm(request)

    door = door_to(serve(answer), None)
    for _ in range(2):
        with pytest.raises(InputError, match=r"does not say where its traces go; .* --trace-dir"):
            take_window(door, WindowPlan(tmp_path, 100), said.append)
    assert not left.is_set()
    left.set()
    waits = "waits up to 0.2 s for the server to name its trace folder"
    assert said == ["measures tokens/s before the window", waits, said[0]]


def test_a_closed_door_waits_for_no_trace_folder(
    tmp_path: Path, load: Load, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "LIMIT_S", 600.0)
    vllm, may_answer = Vllm(tmp_path, load), threading.Event()

    def answer(request: Request) -> Reply:
        if request.path.startswith("/server_info"):
            may_answer.wait(20)
        return vllm(request)

    door = door_to(serve(answer), None)

    def say(stage: str) -> None:
        if stage.startswith("waits up to 600 s"):
            door.close()

    window = in_daemon_thread(lambda: take_window(door, WindowPlan(tmp_path, 100), say))
    with pytest.raises(DecodescopeError):
        window.result(20)
    assert not may_answer.is_set()
    may_answer.set()


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


@pytest.mark.parametrize(
    ("silent", "says"), [("/start_profile", "closed the connection"), ("/metrics", "still runs")]
)
def test_a_server_that_does_not_answer_in_a_window_is_one_line_and_stopped(
    silent: str, says: str, tmp_path: Path, load: Load, serve: Serve
) -> None:
    vllm = Vllm(tmp_path, load)

    def answer(request: Request) -> Reply:
        reply = vllm(request)
        return Reply(raw=b"") if load.recording and request.path == silent else reply

    with pytest.raises(MissingRequirement, match=says):
        door_to(serve(answer), tmp_path).window(WindowPlan(tmp_path, 100), lambda line: None)
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
