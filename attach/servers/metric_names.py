"""The metrics of each engine by name: the only place that knows them.

Names are those of vLLM 0.6 to 0.32 (v1/metrics/loggers.py), SGLang 0.4 to 0.5
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
class MetricNames:
    """The names of an engine's metrics, which begin with `prefix`; of each, the first that the
    server has counts.

    `generated` and `prompt` count tokens as they are computed, `iterations` counts steps, and
    `kv_fill` is from 0 to 1. `throughput` is for engines whose counters only move when a request
    ends.
    """

    prefix: str
    generated: tuple[Series, ...] = ()
    prompt: tuple[Series, ...] = ()
    iterations: tuple[Series, ...] = ()
    running: tuple[Series, ...] = ()
    waiting: tuple[Series, ...] = ()
    kv_fill: tuple[Series, ...] = ()
    throughput: tuple[Series, ...] = ()
    inter_token_latency: tuple[str, ...] = ()


def metric_names(engine: Engine) -> MetricNames:
    """The names of the metrics of `engine`. Those of an unknown one are vLLM's, which other engines
    have taken over, behind any prefix that ends with a colon."""
    return _NAMES[engine]


def _vllm(prefix: str) -> MetricNames:
    return MetricNames(
        prefix,
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


_NAMES: dict[Engine, MetricNames] = {
    "vllm": _vllm("vllm:"),
    "sglang": MetricNames(
        "sglang:",
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
    "trtllm": MetricNames(
        "trtllm_",
        generated=(Series("trtllm_generation_tokens_total"),),
        prompt=(Series("trtllm_prompt_tokens_total"),),
        running=(Series("trtllm_num_requests_running"),),
        waiting=(Series("trtllm_num_requests_waiting"),),
        kv_fill=(Series("trtllm_kv_cache_utilization"),),
    ),
    "llamacpp": MetricNames(
        "llamacpp:",
        generated=(Series("llamacpp:tokens_predicted_total"),),
        prompt=(Series("llamacpp:prompt_tokens_total"),),
        iterations=(Series("llamacpp:n_decode_total"),),
        running=(Series("llamacpp:requests_processing"),),
        waiting=(Series("llamacpp:requests_deferred"),),
        kv_fill=(Series("llamacpp:kv_cache_usage_ratio"),),
        throughput=(Series("llamacpp:predicted_tokens_seconds"),),
    ),
    "unknown": _vllm(":"),
}
