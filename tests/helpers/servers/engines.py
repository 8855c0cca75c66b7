"""Inference servers with the endpoints of real ones, under a load that a test plants.

Names and shapes of the answers: vLLM 0.32.0 as it answered here (CPU build), SGLang 0.5 by its
http_server.py, scheduler_profiler_mixin.py, profile_utils.py and metrics_collector.py, TensorRT-LLM
1.x by openai_server.py and metrics/collector.py, llama.cpp of October 2026 by tools/server.
"""

import gzip
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.helpers.servers.http_server import Reply, Request, as_json

DATA = Path(__file__).resolve().parents[2] / "data"
TRACE = DATA / "cpu_two_blocks.json.gz"
_SAMPLE = re.compile(r"^(?P<labels>vllm:(?P<name>\w+)\{.*\}) \S+$", re.MULTILINE)
MODEL_CARD = {
    "id": "tiny",
    "object": "model",
    "created": 1795722110,
    "owned_by": "vllm",
    "root": "/models/tiny",
    "parent": None,
    "max_model_len": 512,
    "permission": [
        {
            "id": "modelperm-832d243198880f92",
            "object": "model_permission",
            "created": 1795722110,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
    ],
}
COMPLETION = {"choices": [{"text": " a time"}], "usage": {"completion_tokens": 2}}


class Clock:
    """The time of a test: `sleep` passes it on, and takes none. Replaces the module `time`."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class Load:
    """Tokens that `clock` has let the server generate, `per_s` of them, from `running` requests:
    while a window is open fewer, and fewer afterwards."""

    clock: Clock = field(default_factory=Clock)
    per_s: float = 1000.0
    in_window_per_s: float = 600.0
    after_per_s: float = 900.0
    running: int = 8
    recording: bool = False
    generated: float = 0.0
    _seen_s: float = 1000.0

    def tokens(self) -> float:
        elapsed = self.clock.now_s - self._seen_s
        self._seen_s = self.clock.now_s
        self.generated += elapsed * (self.in_window_per_s if self.recording else self.per_s)
        return self.generated

    def start(self) -> None:
        self.tokens()
        self.recording = True

    def stop(self) -> None:
        self.tokens()
        self.recording, self.per_s = False, self.after_per_s


def vllm_metrics(load: Load) -> bytes:
    """What vLLM 0.32.0 (CPU build) said of 8 requests, with the figures of `load`: half of the
    tokens came within 10 ms, all of them within 25 ms."""
    tokens = load.tokens()
    planted: dict[str, float] = {
        "num_requests_running": load.running,
        "num_requests_waiting": 3.0,
        "kv_cache_usage_perc": 0.25,
        "prompt_tokens_total": tokens / 10,
        "generation_tokens_total": tokens,
        "iteration_tokens_total_count": tokens // load.running,
        "inter_token_latency_seconds_bucket": tokens,
    }

    def with_figure(line: re.Match[str]) -> str:
        if line["name"] not in planted:
            return line[0]
        half = 2 if 'le="0.01"' in line[0] else 1
        return f"{line['labels']} {planted[line['name']] / half}"

    return _SAMPLE.sub(with_figure, _recorded_metrics()).encode()


@cache
def _recorded_metrics() -> str:
    return gzip.decompress((DATA / "vllm_metrics.txt.gz").read_bytes()).decode()


@dataclass
class Vllm:
    """vLLM 0.32 with its profiler on, unless `traces` is None. Each rank and the front end write a
    file when it is stopped."""

    traces: Path | None
    load: Load = field(default_factory=Load)
    windows: int = 0
    ranks: int = 2
    served: str = "tiny"
    on_metrics: Callable[["Vllm"], None] = lambda server: None

    def __call__(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/v1/models":
                return as_json({"object": "list", "data": [{**MODEL_CARD, "id": self.served}]})
            case "GET", "/version":
                return as_json({"version": "0.32.0"})
            case "GET", "/metrics":
                self.on_metrics(self)
                return Reply(vllm_metrics(self.load))
            case "POST", "/v1/completions":
                return as_json(COMPLETION)
            case "POST", "/start_profile" if self.traces is not None:
                return self._start()
            case "POST", "/stop_profile" if self.traces is not None:
                return self._stop(self.traces)
        return as_json({"detail": "Not Found"}, 404)

    def _start(self) -> Reply:
        if self.load.recording:
            return as_json({"error": {"message": "A profiling session is already active."}}, 409)
        self.load.start()
        return Reply()

    def _stop(self, traces: Path) -> Reply:
        if self.load.recording:
            self.load.stop()
            self.windows += 1
            ranks = (f"rank{rank}." for rank in range(self.ranks))
            for name in (*ranks, "host_886.async_llm."):
                shutil.copy(TRACE, traces / f"{name}{self.windows}.pt.trace.json.gz")
            (traces / "rank0.profiler_out.txt").write_text("Self CPU %")
        return Reply()


@dataclass
class Sglang:
    """SGLang 0.5 with `--enable-metrics`, of two ranks; with `v2`, of the profiler that
    SGLANG_PROFILE_V2=1 chooses, whose asserts end the server: `is_dead`. A window ends when its
    steps are done, which each look at the metrics takes a fifth of a second nearer."""

    v2: bool = False
    load: Load = field(default_factory=Load)
    is_dead: bool = False
    waits_for_prefill: bool = False
    _folder: Path = Path()
    _end_tokens: float = 0.0

    def __call__(self, request: Request) -> Reply:
        match request.method, request.path:
            case _ if self.is_dead:
                return Reply(raw=b"")
            case "GET", "/v1/models":
                card = {"id": "llama", "object": "model", "owned_by": "sglang", "root": "llama"}
                return as_json({"object": "list", "data": [card]})
            case "GET", "/get_server_info":
                info = {"model_path": "meta-llama/Llama-3.1-8B-Instruct", "tp_size": 2}
                return as_json({**info, "pp_size": 1, "version": "0.5.9", "internal_states": []})
            case "GET", "/metrics":
                return Reply(self._metrics())
            case "POST", "/start_profile":
                return self._start(json.loads(request.body))
            case "POST", "/stop_profile":
                self.is_dead = self.is_dead or self.v2
                self.waits_for_prefill = False
                return Reply(b"Internal Server Error", 500)
        return as_json({"detail": "Not Found"}, 404)

    def _start(self, body: dict[str, object]) -> Reply:
        forbidden = (body.get("start_step"), body.get("merge_profiles"))
        if self.v2 and (any(forbidden) or not body["profile_by_stage"]):
            self.is_dead = True
            return Reply(raw=b"")
        steps = body["num_steps"]
        assert isinstance(steps, int)
        self._folder = Path(str(body["output_dir"]))
        self.load.start()
        self._end_tokens = self.load.generated + steps * self.load.running
        return Reply(b"Start profiling.\n")

    def _metrics(self) -> bytes:
        self.load.clock.now_s += 0.2 if self.load.recording else 0
        tokens = self.load.tokens()
        if self.load.recording and tokens >= self._end_tokens:
            self.load.stop()
            stage = "decode" if self.v2 else "DECODE"
            self._folder.mkdir(parents=True, exist_ok=True)
            for rank in range(2):
                name = f"1764180000.123456-TP-{rank}-{stage}.trace.json.gz"
                shutil.copy(TRACE, self._folder / name)
            self.waits_for_prefill = not self.v2
        labels = 'engine_type="unified",model_name="llama",pp_rank="0"'
        lines = ["# TYPE sglang:num_running_reqs gauge"]
        for rank in range(2):
            ranked = f'{labels},tp_rank="{rank}"'
            lines += (
                f"sglang:num_running_reqs{{{ranked}}} {self.load.running}.0",
                f'sglang:num_queue_reqs{{{ranked},priority=""}} 5.0',
                f'sglang:num_queue_reqs{{{ranked},priority="1"}} 5.0',
                f"sglang:token_usage{{{ranked}}} 0.5",
                f"sglang:gen_throughput{{{ranked}}} 777.0",
                f'sglang:realtime_tokens_total{{{ranked},mode="decode"}} {tokens}',
                f'sglang:realtime_tokens_total{{{ranked},mode="prefill_cache"}} 12.0',
            )
        return "\n".join([*lines, ""]).encode()


def tensorrt_llm(request: Request) -> Reply:
    match request.path:
        case "/v1/models":
            card = {"id": "TinyLlama", "object": "model", "owned_by": "tensorrt_llm"}
            return as_json({"object": "list", "data": [card]})
        case "/version":
            return as_json({"version": "1.2.0"})
        case "/metrics":
            return as_json([{"iter": 3, "numActiveRequests": 2}])
        case "/prometheus/metrics":
            labels = 'engine_type="undefined",model_name="TinyLlama"'
            return Reply(
                f"# TYPE trtllm_generation_tokens_total counter\n"
                f"trtllm_generation_tokens_total{{{labels}}} 512.0\n"
                f"trtllm_num_requests_running{{{labels}}} 2.0\n"
                f"trtllm_kv_cache_utilization{{{labels}}} 0.125\n".encode()
            )
    return as_json({"detail": "Not Found"}, 404)


def llama_cpp(request: Request) -> Reply:
    match request.path:
        case "/v1/models":
            card = {"id": "qwen.gguf", "object": "model", "owned_by": "llamacpp", "meta": {}}
            return as_json({"models": [], "object": "list", "data": [card]})
        case "/props":
            return as_json({"build_info": "b7180-c1e2f", "model_path": "qwen.gguf"})
        case "/metrics":
            return Reply(
                b"# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n"
                b"# TYPE llamacpp:prompt_tokens_total counter\n"
                b"llamacpp:prompt_tokens_total 120\n"
                b"llamacpp:tokens_predicted_total 480\n"
                b"llamacpp:predicted_tokens_seconds 61.5\n"
                b"llamacpp:n_decode_total 90\n"
                b"llamacpp:requests_processing 1\n"
                b"llamacpp:requests_deferred 0\n"
            )
    return Reply(b'{"error":{"code":404}}', 404)
