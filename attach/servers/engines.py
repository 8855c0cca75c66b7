"""The engines and the names of their metrics: the only place that knows them.

Names of metrics are those of vLLM 0.6 to 0.32 (v1/metrics/loggers.py), SGLang 0.4 to 0.5
(observability/metrics_collector.py), TensorRT-LLM 1.x (metrics/collector.py) and llama.cpp of 2026
(tools/server); where an engine has renamed a metric, the newest name comes first.
"""

from dataclasses import dataclass
from typing import Literal

Engine = Literal["vllm", "sglang", "trtllm", "llamacpp", "unknown"]


@dataclass(frozen=True, slots=True)
class Series:
    """The samples of one name, of those that have `label` if there is one."""

    name: str
    label: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """An engine, and the names of its metrics, which begin with `prefix`; of each, the first that
    the server has counts.

    `generated` and `prompt` count tokens as they are computed, `iterations` counts steps, and
    `kv_fill` is from 0 to 1. `throughput` is for engines whose counters only move when a request
    ends.

    `owner` is the `owned_by` of its models in the answer to /v1/models. `metrics_option` starts a
    server with metrics. `by_hand` says how to record a window where no endpoint opens one.
    """

    title: str
    prefix: str
    owner: str = ""
    metrics_option: str = "its metrics"
    by_hand: str = ""
    generated: tuple[Series, ...] = ()
    prompt: tuple[Series, ...] = ()
    iterations: tuple[Series, ...] = ()
    running: tuple[Series, ...] = ()
    waiting: tuple[Series, ...] = ()
    kv_fill: tuple[Series, ...] = ()
    throughput: tuple[Series, ...] = ()
    inter_token_latency: tuple[str, ...] = ()


def _vllm(title: str, prefix: str, **facts: str) -> EngineFacts:
    return EngineFacts(
        title,
        prefix,
        **facts,
        generated=(Series(f"{prefix}generation_tokens_total"),),
        prompt=(Series(f"{prefix}prompt_tokens_total"),),
        iterations=(Series(f"{prefix}iteration_tokens_total_count"),),
        running=(Series(f"{prefix}num_requests_running"),),
        waiting=(Series(f"{prefix}num_requests_waiting"),),
        kv_fill=(Series(f"{prefix}kv_cache_usage_perc"), Series(f"{prefix}gpu_cache_usage_perc")),
        throughput=(Series(f"{prefix}avg_generation_throughput_toks_per_s"),),
        inter_token_latency=(
            f"{prefix}inter_token_latency_seconds",
            f"{prefix}time_per_output_token_seconds",
        ),
    )


ENGINES: dict[Engine, EngineFacts] = {
    "vllm": _vllm("vLLM", "vllm:", owner="vllm"),
    "sglang": EngineFacts(
        "SGLang",
        "sglang:",
        owner="sglang",
        metrics_option="--enable-metrics",
        # generation_tokens_total and prompt_tokens_total move only when a request ends.
        generated=(Series("sglang:realtime_tokens_total", ("mode", "decode")),),
        prompt=(
            Series("sglang:realtime_tokens_total", ("mode", "prefill_compute")),
            Series("sglang:prompt_tokens_total"),
        ),
        running=(Series("sglang:num_running_reqs"),),
        waiting=(Series("sglang:num_queue_reqs"),),
        kv_fill=(Series("sglang:token_usage"),),
        throughput=(Series("sglang:gen_throughput"),),
        inter_token_latency=("sglang:inter_token_latency_seconds",),
    ),
    "trtllm": EngineFacts(
        "TensorRT-LLM",
        "trtllm_",
        owner="tensorrt_llm",
        metrics_option="return_perf_metrics: true",
        by_hand="has no profile endpoint; record to a file with TLLM_TORCH_PROFILE_TRACE",
        generated=(Series("trtllm_generation_tokens_total"),),
        prompt=(Series("trtllm_prompt_tokens_total"),),
        running=(Series("trtllm_num_requests_running"),),
        waiting=(Series("trtllm_num_requests_waiting"),),
        kv_fill=(Series("trtllm_kv_cache_utilization"),),
    ),
    "llamacpp": EngineFacts(
        "llama.cpp",
        "llamacpp:",
        owner="llamacpp",
        metrics_option="--metrics",
        by_hand="has no profile endpoint; record to a file with Nsight Systems",
        generated=(Series("llamacpp:tokens_predicted_total"),),
        prompt=(Series("llamacpp:prompt_tokens_total"),),
        iterations=(Series("llamacpp:n_decode_total"),),
        running=(Series("llamacpp:requests_processing"),),
        waiting=(Series("llamacpp:requests_deferred"),),
        kv_fill=(Series("llamacpp:kv_cache_usage_ratio"),),
        throughput=(Series("llamacpp:predicted_tokens_seconds"),),
    ),
    # Other engines have taken over vLLM's names, behind any prefix that ends with a colon.
    "unknown": _vllm(
        "an unknown engine",
        ":",
        by_hand="has no known profile endpoint; record to a file with its own profiler",
    ),
}
