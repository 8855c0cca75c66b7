"""What a server is, by its answers alone."""

import os
import re
import threading
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers import opening
from decodescope.attach.servers.tokens import Token
from tests.helpers.servers.doors import open_server
from tests.helpers.servers.engines import Sglang, Vllm, llama_cpp, tensorrt_llm
from tests.helpers.servers.http_server import Answering, HttpServer, Reply, Request, as_json

TINY = Path(__file__).resolve().parents[3] / "variants" / "tiny"


def with_root(root: str, name: str = "tiny") -> Answering:
    """A vLLM server whose model is `name`, from `root`."""
    vllm = Vllm(None)

    def answer(request: Request) -> Reply:
        if request.path != "/v1/models":
            return vllm(request)
        return as_json({"data": [{"id": name, "owned_by": "vllm", "root": root}]})

    return answer


@pytest.mark.parametrize(
    ("answer", "target", "model"),
    [
        (Vllm(None), "vLLM 0.32.0 at {url}, serving tiny", None),
        (with_root("Qwen/Qwen3-8B", "chat"), "vLLM 0.32.0 at {url}, serving chat", "Qwen/Qwen3-8B"),
        (
            with_root("/m", "gpt-oss-20b"),
            "vLLM 0.32.0 at {url}, serving gpt-oss-20b",
            "gpt-oss-20b",
        ),
        (
            Sglang(),
            "SGLang 0.5.9 at {url}, serving llama",
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        (tensorrt_llm, "TensorRT-LLM 1.2.0 at {url}, serving TinyLlama", None),
        (llama_cpp, "llama.cpp b7180-c1e2f at {url}, serving qwen.gguf", None),
        (
            lambda request: Reply(
                b"# TYPE up gauge\nup 1\n", 200 if "metr" in request.path else 404
            ),
            "an unknown engine at {url}",
            None,
        ),
    ],
)
def test_an_engine_its_version_and_its_model(
    answer: Answering, target: str, model: str | None
) -> None:
    with HttpServer(answer) as server, open_server(server.url, None) as door:
        assert door.target == target.format(url=server.url)
        assert door.model == model


def test_the_model_of_a_server_of_this_machine_may_be_a_folder() -> None:
    with HttpServer(with_root(str(TINY))) as server, open_server(server.url, None) as door:
        assert door.model == str(TINY)


def test_a_door_that_looks_again_finds_what_is_there_now() -> None:
    serving: list[Answering] = [Vllm(None)]
    with HttpServer(lambda request: serving[-1](request)) as server:
        door = open_server(server.url, None)
        serving.append(with_root("Qwen/Qwen3-8B", "chat"))
        door.look_again()
        assert (door.target[-12:], door.model) == ("serving chat", "Qwen/Qwen3-8B")
        serving.append(llama_cpp)
        door.look_again()
        assert door.target.startswith("llama.cpp")
        assert not door.has_windows
        assert door.metrics().running == 1


def test_no_file_but_the_config_of_a_folder_is_read(tmp_path: Path) -> None:
    """A server that names a device, a pipe or a file must not have it read."""
    os.mkfifo(tmp_path / "config.json")
    for root in (str(tmp_path), str(tmp_path / "config.json"), "/dev/zero", "variants/tiny"):
        with HttpServer(with_root(root)) as server, open_server(server.url, None) as door:
            assert door.model is None


def test_names_of_a_server_are_shown_harmless_and_short() -> None:
    with HttpServer(with_root("x", "a\x1b[2J\n\u202e" + "b" * 500)) as server:
        target = open_server(server.url, None).target
    assert target.isprintable()
    assert "a\\x1b[2J\\n\\u202ebbb" in target
    assert len(target) < 160


def test_a_server_that_only_has_metrics_behind_a_token() -> None:
    def answer(request: Request) -> Reply:
        if request.headers.get("Authorization") != "Bearer sk-abc":
            return as_json({"error": "Unauthorized"}, 401)
        return Vllm(None)(request)

    with HttpServer(answer) as server:
        with pytest.raises(MissingRequirement, match="asks for a token"):
            open_server(server.url, None)
        door = open_server(server.url, None, Token("Bearer sk-abc"))
        assert door.metrics().running == 8.0
        assert "sk-abc" not in door.target + repr(door)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(b"", 404), "has no such endpoint"),
        (Reply(b"", 500), "answers 500"),
        (Reply(b"<html>"), "has neither models"),
        (Reply(b""), "has neither models"),
        (Reply(b"\x00" * 1000), "has neither models"),
        (Reply(b'{"data": 5}'), "has neither models"),
        (Reply(b"[" * 100_000), "has neither models"),
        (Reply(raw=b""), "closed the connection"),
    ],
)
def test_what_is_no_inference_server_is_one_line(reply: Reply, said: str) -> None:
    with (
        HttpServer(lambda request: reply) as server,
        pytest.raises(DecodescopeError, match=said) as caught,
    ):
        open_server(server.url, None)
    assert str(caught.value).isprintable()


def test_an_empty_list_of_models_is_an_unknown_engine_without_metrics(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.path == "/v1/models":
            return as_json({"data": [{"id": "m"}]})
        return Reply(b"", 404)

    with HttpServer(answer) as server, open_server(server.url, None) as door:
        assert door.metrics().generated_tokens is None
        assert door.cost.startswith("only the metrics are read")
        assert door.cost.endswith(
            "tokens/s is not known, as the server has to be started with its metrics"
        )
        with pytest.raises(MissingRequirement, match=r"record to a file .* docs/engines.md says"):
            door.window(WindowPlan(tmp_path, 10), print)


@pytest.mark.parametrize(
    ("answer", "how"),
    [(tensorrt_llm, "TLLM_TORCH_PROFILE_TRACE"), (llama_cpp, "Nsight Systems")],
)
def test_engines_without_a_profile_endpoint_say_how_to_record(
    answer: Answering, how: str, tmp_path: Path
) -> None:
    with HttpServer(answer) as server, open_server(server.url, None) as door:
        assert door.has_windows is False
        assert door.metrics().running is not None
        with pytest.raises(MissingRequirement, match=how):
            door.window(WindowPlan(tmp_path, 10), print)
        assert {method for method, _ in server.asked} == {"GET"}


def test_a_server_that_dies_is_said_and_found_again() -> None:
    with HttpServer(Vllm(None)) as server:
        door = open_server(server.url, None)
        assert door.metrics().running == 8.0
        server.kill()
        with pytest.raises(MissingRequirement, match="nothing listens there; start the server"):
            door.metrics()


def test_metrics_that_turn_into_something_else_are_said() -> None:
    vllm = Vllm(None)
    bodies = iter((None, b"vllm:num_requests_running{ 1\n"))

    def answer(request: Request) -> Reply:
        body = next(bodies) if request.path == "/metrics" else None
        return vllm(request) if body is None else Reply(body)

    with HttpServer(answer) as server:
        door = open_server(server.url, None)
        with pytest.raises(InputError, match="no Prometheus text"):
            door.metrics()


def test_a_server_has_one_limit_for_all_that_is_asked_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "_ANSWERS_S", 0.2)
    ending = threading.Event()

    def answer(request: Request) -> Reply:
        if request.path == "/metrics":
            ending.wait(20)
        return as_json({"data": [{"id": "tiny"}]})

    with HttpServer(answer) as server:
        said = f"{server.url}: has not said within 0.2 s what it is; see whether it still works"
        with pytest.raises(MissingRequirement, match=re.escape(said)):
            open_server(server.url, None)
        ending.set()


def test_two_hundred_doors_leave_nothing_open() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    with HttpServer(llama_cpp) as server:
        with open_server(server.url, None):
            pass
        before = descriptors()
        for _ in range(200):
            with open_server(server.url, None):
                pass
        # The server closes its ends in threads of its own.
        assert descriptors() <= before + 8
