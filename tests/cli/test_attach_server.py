"""`attach URL` as a command: a report for each window, and the token that a server asks for."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.schema.report import Report
from decodescope.attach.servers import server_door
from tests.helpers.command import Command
from tests.helpers.servers.engines import Load, Vllm
from tests.helpers.servers.http_server import HttpServer, Reply, Request, as_json

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
