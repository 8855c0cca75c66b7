"""`attach URL` as a command: a report for each window, and the token that a server asks for."""

import gzip
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.protocol.attach_messages import ServerSample, Target, WindowTaken
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.recordings.writer import RecordingWriter
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.ranks_report import ServersReport
from decodescope.analyzer.schema.report import Report
from decodescope.attach.servers import opening, server_door
from decodescope.attach.servers.group_door import GroupDoor
from decodescope.tui.model.opening import open_feed
from decodescope.tui.model.sources import ReplaySource
from decodescope.tui.model.view import AppClock
from tests.helpers.command import Command
from tests.helpers.servers.engines import Load, Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request, as_json
from tests.helpers.servers.replicas import QUICK, STEPS, Servers, servers

SECRET = "s3cret-of-the-server"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    planted = Load()
    monkeypatch.setattr(server_door, "time", planted.clock)
    return planted


def test_a_window_of_a_server_is_a_report_with_what_it_cost(
    decodescope: Command, tmp_path: Path, load: Load
) -> None:
    with HttpServer(Vllm(tmp_path, load, ranks=1)) as server:
        done = decodescope("attach", server.url, "--json", "--trace-dir", str(tmp_path))
    assert done.code == 0, done.err
    assert f"vLLM 0.32.0 at {server.url}, serving tiny" in done.err
    assert "slows decoding while it lasts" in done.err
    assert "cost of the window: 1,000→600→900 tok/s" in done.err
    observer = msgspec.json.decode(done.out, type=Report).observer
    assert observer is not None
    assert observer.before_tokens_per_s == pytest.approx(1000.0)
    assert observer.during_tokens_per_s == pytest.approx(600.0)
    assert observer.after_tokens_per_s == pytest.approx(900.0)


def test_a_token_comes_from_a_file_or_a_variable_and_is_in_no_output(
    decodescope: Command, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = Vllm(tmp_path, load, ranks=1)

    def answer(request: Request) -> Reply:
        if request.headers.get("Authorization") != f"Bearer {SECRET}":
            return as_json({"error": "Unauthorized"}, 401)
        return vllm(request)

    (tmp_path / "token").write_text(f"{SECRET}\n")
    (tmp_path / "empty").write_text("\n")
    monkeypatch.setenv("SERVER_TOKEN", SECRET)
    with HttpServer(answer) as server:
        words = ("attach", server.url, "--windows", "1", "--trace-dir", str(tmp_path))
        refused = decodescope(*words)
        by_file = decodescope(*words, "--token-file", str(tmp_path / "token"))
        by_variable = decodescope(*words, "--token-variable", "SERVER_TOKEN")
        empty = decodescope(*words, "--token-file", str(tmp_path / "empty"))
        unset = decodescope(*words, "--token-variable", "NO_SUCH_TOKEN")
    assert refused.code != 0
    assert "asks for a token" in refused.only_line
    assert (by_file.code, by_variable.code) == (0, 0), by_file.err + by_variable.err
    assert "holds no token" in empty.only_line
    assert "NO_SUCH_TOKEN: this environment variable is not set" in unset.only_line
    for done in (refused, by_file, by_variable, empty, unset):
        assert SECRET not in done.out + done.err
    written = [path for path in tmp_path.iterdir() if path.name not in ("token", "empty")]
    assert written
    assert not any(SECRET.encode() in path.read_bytes() for path in written)


@pytest.mark.parametrize("option", ["--token-file", "--token-variable", "--trace-dir"])
def test_options_of_servers_are_refused_for_processes(decodescope: Command, option: str) -> None:
    assert (
        f"{option} x: only with the URL of a server"
        in decodescope("attach", "7", option, "x").only_line
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens/s before and after a window are measured for a twentieth of a second."""
    monkeypatch.setattr(server_door, "Pace", lambda: QUICK)
    monkeypatch.setattr(opening, "GroupDoor", lambda doors: GroupDoor(doors, 5.0, 0.05))


def words(two: Servers, *more: str) -> tuple[str, ...]:
    folders = [word for folder in two.folders for word in ("--trace-dir", str(folder))]
    return ("attach", *two.urls, *folders, "--model", "none", *more)


@pytest.mark.usefixtures("quick")
def test_a_window_of_several_servers_is_a_report_of_each_and_of_all(
    decodescope: Command, tmp_path: Path
) -> None:
    with servers(tmp_path) as two:
        done = decodescope(*words(two, "--json", "--ms", "10"))
        shown = decodescope(*words(two, "--windows", "1", "--ms", "10"))
        two.https[1].kill()
        names = two.names
        alone = decodescope(*words(two, "--json"))
        two.https[0].kill()
        none = decodescope(*words(two, "--json"))
    assert done.code == 0, done.err
    report = msgspec.json.decode(done.out, type=ServersReport)
    assert [server.figures.name for server in report.servers] == names
    for server in report.servers:
        (rank,) = server.ranks
        assert len(rank.report.steps) == STEPS
        assert rank.report.observer == server.observer
    assert report.group.running == 16.0
    assert report.group.servers == tuple(server.figures for server in report.servers)
    assert report.merged is not None
    assert [device.gpu_ops for device in report.merged.devices] == [STEPS, STEPS]
    assert report.merged.observer == report.observer
    assert report.findings == ()
    assert shown.code == 0, shown.err
    assert "2 servers  " in shown.out
    for title in (*names, "All servers on one clock"):
        assert title in shown.out.splitlines()
    assert alone.code == 0, alone.err
    gone = f"http://{names[1]}/v1/models: nothing listens there"
    assert alone.err.startswith(f"attached without {gone}")
    first, second = msgspec.json.decode(alone.out, type=ServersReport).servers
    assert len(first.ranks) == 1
    assert second.problem.startswith(gone)
    assert none.code == 3
    assert f"http://{names[0]}/v1/models: nothing listens there" in none.only_line


@pytest.mark.usefixtures("quick")
def test_a_window_that_lost_its_kernels_is_taken_again(
    decodescope: Command, tmp_path: Path
) -> None:
    with servers(tmp_path) as two:
        two.replicas[1].lost = 1
        done = decodescope(*words(two, "--json", "--ms", "10"))
    assert done.code == 0, done.err
    again = "the window lost its kernels; taking it again (1 of 2)"
    assert done.err.splitlines().count(again) == 1
    report = msgspec.json.decode(done.out, type=ServersReport)
    for server in report.servers:
        (rank,) = server.ranks
        assert len(rank.report.steps) == rank.report.devices[0].gpu_ops == STEPS
        assert rank.report.source.path.endswith("rank0.2.pt.trace.json.gz")
        assert server.observer is not None
        assert server.observer.windows == 2
    assert report.observer.windows == 2
    assert [replica.windows for replica in two.replicas] == [2, 2]


@pytest.mark.usefixtures("quick")
def test_a_server_that_is_another_one_is_named_and_judged_anew(
    decodescope: Command, tmp_path: Path
) -> None:
    """Between the windows, the server of the first one ends and serves another model."""
    with servers(tmp_path, 1) as alone:
        replica = alone.replicas[0]
        replica.served = "meta-llama/Llama-3.2-1B"
        stop = replica._stop

        def then_another(traces: Path) -> Reply:
            reply = stop(traces)
            replica.served = "meta-llama/Llama-3.1-8B"
            return reply

        replica._stop = then_another  # type: ignore[method-assign]
        folder = ("--trace-dir", str(alone.folders[0]))
        done = decodescope("attach", *alone.urls, *folder, "--windows", "3", "--json", "--ms", "10")
    assert done.code == 0, done.err
    reports = [msgspec.json.decode(line, type=Report) for line in done.out.splitlines()]
    models = [report.answer.model for report in reports if report.answer is not None]
    assert models == ["meta-llama/Llama-3.2-1B", *["meta-llama/Llama-3.1-8B"] * 2]
    targets = [report.observer.target for report in reports if report.observer is not None]
    assert ["8B" in target for target in targets] == [False, True, True]
    assert done.err.splitlines().count(f"now {targets[1]}") == 1


@pytest.mark.usefixtures("quick")
def test_a_recording_has_the_metrics_and_the_windows_and_no_token(
    decodescope: Command, tmp_path: Path
) -> None:
    recording = tmp_path / "seen.dsrec"
    (tmp_path / "token").write_text(SECRET)
    with servers(tmp_path) as two:
        more = ("--record", str(recording), "--token-file", str(tmp_path / "token"))
        done = decodescope(*words(two, "--windows", "2", "--ms", "10", *more))
        assert {request.headers["Authorization"] for request in two.https[0].requests} == {
            f"Bearer {SECRET}"
        }
    assert done.code == 0, done.err
    found = read_recording(recording)
    target, *others = [frame.message for frame in found.frames()]
    assert isinstance(target, Target)
    assert target.name.startswith("2 servers: vLLM 0.32.0")
    samples = [message.figures for message in others if isinstance(message, ServerSample)]
    assert samples[0] is not None
    assert samples[0].running == 16.0
    assert [type(frame.message) for frame in found.windows] == [WindowTaken] * 2
    traces = [gzip.decompress(one) for frame in found.windows for one in found.packed_traces(frame)]
    assert len(traces) == 4
    for data in (recording.read_bytes(), *traces):
        assert SECRET.encode() not in data
    drawn = decodescope("open", str(recording), "--once", "--size", "120x50")
    assert "2 servers: vLLM 0.32.0" in drawn.out
    assert "16 running" in drawn.out
    assert f"decode · {2 * STEPS} steps · 1.00 ms a step" in drawn.out
    assert "limit not known" in drawn.out
    model = ("--model", "llama-3.2-1b", "--peak", "4.8TB/s")
    named = decodescope("open", str(recording), "--once", *model)
    assert "limit not known" not in named.out
    one = decodescope("analyze", str(recording))
    assert (one.code, one.err) == (0, "")
    assert f"decode · {2 * STEPS} steps · 1.00 ms a step" in one.out


def test_a_recording_names_the_model_of_the_server_and_no_file(tmp_path: Path) -> None:
    def given(model: str) -> Given | None:
        path = tmp_path / f"{len(model)}.dsrec"
        with closing(RecordingWriter(path)) as writer:
            writer.write(Target("vLLM", "a cost", "", model))
        return open_feed(ReplaySource(path), AppClock()).source.given

    named = given("meta-llama/Llama-3.1-8B-Instruct")
    assert named is not None
    assert named.model is not None
    assert given("variants/tiny") is None
    assert given("no-such/model-name") is None


@pytest.mark.usefixtures("quick")
def test_the_recording_of_one_server_is_a_trace_too(decodescope: Command, tmp_path: Path) -> None:
    recording = tmp_path / "seen.dsrec"
    with servers(tmp_path, 1) as alone:
        done = decodescope(*words(alone, "--json", "--record", str(recording)))
        refused = decodescope(*words(alone, "--json", "--record", str(tmp_path / "no" / "file")))
    assert done.code == 0, done.err
    report = msgspec.json.decode(decodescope("analyze", "--json", str(recording)).out, type=Report)
    assert report.source.format == "recording"
    assert len(report.steps) == STEPS
    assert "--record" in refused.only_line


@pytest.mark.parametrize("path", ["-", "/dev/stdout"])
@pytest.mark.parametrize("command", [("attach", "--json"), ("live", "--model", "tiny", "--once")])
def test_a_recording_is_not_written_to_standard_output(
    decodescope: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    path: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with HttpServer(Vllm(tmp_path)) as server:
        target = (server.url,) if command[0] == "attach" else ()
        done = decodescope(*command, *target, "--record", path)
        assert server.requests == []
    assert done.code == 2
    assert "--record: standard output has the reports or the app; name a file" in done.only_line
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("quick")
def test_a_server_that_refuses_its_window_is_said_in_the_report(
    decodescope: Command, tmp_path: Path
) -> None:
    with servers(tmp_path) as two:
        two.replicas[0].traces = None
        done = decodescope(*words(two, "--json", "--ms", "10"))
        names = two.names
    assert done.code == 0, done.err
    report = msgspec.json.decode(done.out, type=ServersReport)
    first, second = report.servers
    assert "runs without its profiler" in first.problem
    assert (first.ranks, first.observer) == ((), None)
    assert len(second.ranks) == 1
    assert f"no window of {names[0]}: http://{names[0]}" in done.err


@pytest.mark.usefixtures("quick")
def test_a_trace_that_cannot_be_read_ends_the_report_of_no_other_server(
    decodescope: Command, tmp_path: Path
) -> None:
    with servers(tmp_path) as two:
        broken = two.replicas[1]
        stop = broken._stop

        def then_broken(traces: Path) -> Reply:
            reply = stop(traces)
            if broken.windows == 1:
                (traces / "rank0.1.pt.trace.json.gz").write_bytes(b"not json at all }")
            return reply

        broken._stop = then_broken  # type: ignore[method-assign]
        done = decodescope(*words(two, "--windows", "3", "--json", "--ms", "10"))
        first_name, name = two.names
    assert done.code == 0, done.err
    reports = [msgspec.json.decode(line, type=ServersReport) for line in done.out.splitlines()]
    assert [len(report.servers[0].ranks) for report in reports] == [1, 1, 1]
    assert [len(report.servers[1].ranks) for report in reports] == [0, 1, 1]
    problem = reports[0].servers[1].problem
    assert "rank0.1.pt.trace.json.gz" in problem
    assert f"no report of {name}: {problem}" in done.err.splitlines()
    assert f"no report of {first_name}" not in done.err
    assert reports[0].merged is not None
    assert [device.gpu_ops for device in reports[0].merged.devices] == [STEPS]
    assert [report.servers[1].problem for report in reports[1:]] == ["", ""]
