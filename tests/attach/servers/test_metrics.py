"""Metrics of each engine, read from text as their servers write it."""

import math
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import parser

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.attach.servers.engines import Engine
from decodescope.attach.servers.metrics import (
    Histogram,
    ServerMetrics,
    engine_of,
    is_prometheus,
    read_metrics,
)
from tests.helpers.servers.engines import Load, Sglang, llama_cpp, tensorrt_llm, vllm_metrics
from tests.helpers.servers.http_server import Request

URL = "http://127.0.0.1:8000/metrics"

VLLM_BOUNDS_S = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
    20.0,
    40.0,
    80.0,
    math.inf,
)


def read(text: str | bytes, engine: Engine = "vllm") -> ServerMetrics:
    data = text.encode() if isinstance(text, str) else text
    return read_metrics(data, engine, 5.0, URL)


def get(path: str) -> Request:
    return Request("GET", path, b"", {})


def test_vllm() -> None:
    load = Load(generated=4000.0)
    assert read(vllm_metrics(load)) == ServerMetrics(
        5.0,
        generated_tokens=4000.0,
        prompt_tokens=400.0,
        iterations=500.0,
        running=8.0,
        waiting=3.0,
        kv_fill=0.25,
        inter_token_latency=Histogram(VLLM_BOUNDS_S, (2000.0, *[4000.0] * 19)),
    )


def test_data_parallel_replicas_are_added_and_their_kv_fill_is_the_mean() -> None:
    metrics = read(
        'vllm:generation_tokens_total{engine="0"} 100\n'
        'vllm:generation_tokens_total{engine="1"} 50\n'
        'vllm:num_requests_running{engine="0"} 4\nvllm:num_requests_running{engine="1"} 0\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:kv_cache_usage_perc{engine="1"} 0.1\n'
        'vllm:iteration_tokens_total_count{engine="0"} 70\n'
        'vllm:iteration_tokens_total_count{engine="1"} 30\n'
        'vllm:inter_token_latency_seconds_bucket{engine="0",le="0.1"} 1\n'
        'vllm:inter_token_latency_seconds_bucket{engine="1",le="0.1"} 2\n'
        'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf"} 4\n'
        'vllm:inter_token_latency_seconds_bucket{engine="1",le="+Inf"} 8\n'
    )
    assert (metrics.generated_tokens, metrics.running) == (150.0, 4.0)
    assert metrics.kv_fill == pytest.approx(0.3)
    assert metrics.iterations == 70.0
    assert metrics.inter_token_latency == Histogram((0.1, math.inf), (3.0, 12.0))


def test_names_of_older_versions_count_where_the_new_ones_are_missing() -> None:
    old = read(
        "vllm:gpu_cache_usage_perc 0.75\nvllm:avg_generation_throughput_toks_per_s 42\n"
        'vllm:time_per_output_token_seconds_bucket{le="1"} 3\n'
        'vllm:time_per_output_token_seconds_bucket{le="+Inf"} 3\n'
    )
    assert (old.kv_fill, old.generated_per_s) == (0.75, 42.0)
    assert old.inter_token_latency == Histogram((1.0, math.inf), (3.0, 3.0))
    both = read("vllm:gpu_cache_usage_perc 0.75\nvllm:kv_cache_usage_perc 0.5\n")
    assert both.kv_fill == 0.5
    assert both.generated_tokens is None


def test_sglang_counts_a_replica_once_and_priorities_not_at_all() -> None:
    server = Sglang(load=Load(generated=640.0))
    metrics = read(server(get("/metrics")).body, "sglang")
    assert (metrics.running, metrics.waiting, metrics.kv_fill) == (8.0, 5.0, 0.5)
    assert (metrics.generated_tokens, metrics.generated_per_s) == (640.0, 777.0)
    assert metrics.prompt_tokens is None
    # Without the counter of each step, the one of finished requests is not taken for it.
    finished = read("sglang:generation_tokens_total 9\nsglang:gen_throughput 7\n", "sglang")
    assert (finished.generated_tokens, finished.generated_per_s) == (None, 7.0)


def test_tensorrt_llm_and_llama_cpp() -> None:
    trtllm = read(tensorrt_llm(get("/prometheus/metrics")).body, "trtllm")
    assert (trtllm.generated_tokens, trtllm.running, trtllm.kv_fill) == (512.0, 2.0, 0.125)
    llamacpp = read(llama_cpp(get("/metrics")).body, "llamacpp")
    assert (llamacpp.generated_tokens, llamacpp.iterations) == (480.0, 90.0)
    assert (llamacpp.prompt_tokens, llamacpp.waiting, llamacpp.kv_fill) == (120.0, 0.0, None)


def test_an_unknown_engine_with_vllms_names_is_read() -> None:
    metrics = read('fork:generation_tokens_total{engine="0"} 11\nup 1\n', "unknown")
    assert metrics == ServerMetrics(5.0, generated_tokens=11.0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e308"])
def test_values_that_cannot_be_are_missing(value: str) -> None:
    text = f"vllm:num_requests_running {value}\nvllm:kv_cache_usage_perc {value}\n"
    assert read(text) == ServerMetrics(5.0)
    assert read("vllm:kv_cache_usage_perc 55\n") == ServerMetrics(5.0)


def test_a_long_line_is_refused_unparsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """prometheus_client would take 6 s for one of a million bytes."""
    monkeypatch.setattr(parser, "text_string_to_metric_families", lambda text: pytest.fail(text))
    labels = ",".join(f'a{number}="b"' for number in range(3000))
    with pytest.raises(InputError, match="no Prometheus text"):
        read(f"vllm:num_requests_running{{{labels}}} 1\n")


def test_only_lines_of_figures_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server with many engines has tens of thousands of others."""
    parsed: list[str] = []

    def parse(text: str) -> list[object]:
        parsed.append(text)
        return []

    monkeypatch.setattr(parser, "text_string_to_metric_families", parse)
    read('vllm:request_success_total 1\nvllm:num_requests_running 2\nvllm:e2e_bucket{le="1"} 1\n')
    assert parsed == ["vllm:num_requests_running 2\n"]


def test_a_histogram_without_its_last_bucket_is_missing() -> None:
    bucket = "vllm:inter_token_latency_seconds_bucket"
    assert read(f'{bucket}{{le="0.1"}} 1\n{bucket}{{le="0.2"}} 1\n').inter_token_latency is None
    assert read(f'{bucket}{{le="x"}} 1\n{bucket} 2\n').inter_token_latency is None


@pytest.mark.parametrize("bound", ["NaN", "-Inf", "-0.5", "1e308"])
def test_a_bucket_up_to_no_time_is_left_out(bound: str) -> None:
    bucket = "vllm:inter_token_latency_seconds_bucket"
    text = f'{bucket}{{le="{bound}"}} 1\n{bucket}{{le="0.1"}} 2\n{bucket}{{le="+Inf"}} 3\n'
    assert read(text).inter_token_latency == Histogram((0.1, math.inf), (2.0, 3.0))


@pytest.mark.parametrize(
    ("text", "is_metrics", "engine"),
    [
        (b"# HELP up x\n# TYPE up gauge\nup 1\n", True, None),
        (b'vllm:num_requests_running{engine="0"} 1.0\n', True, "vllm"),
        (b"llamacpp:n_decode_total 3\n", True, "llamacpp"),
        (b"trtllm_prompt_tokens_total 3\n", True, "trtllm"),
        (b"", False, None),
        (b"<html>not vllm: here</html>", False, None),
        (b'[{"iter": 3}]', False, None),
        (b"Not found\n", False, None),
        (b"\x00\xff\xfe", False, None),
    ],
)
def test_what_is_prometheus_text_and_whose(
    text: bytes, is_metrics: bool, engine: Engine | None
) -> None:
    assert is_prometheus(text) is is_metrics
    assert engine_of(text) == engine


@pytest.mark.parametrize(
    "text", ['vllm:num_requests_running{engine="0 1\nvllm:x{ 2\n', "<html>starting</html>"]
)
def test_damaged_lines_and_other_answers_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match="metrics are no Prometheus text; check the URL"):
        read(text)


@given(st.text(alphabet='vllm:_bucket{le="0.1,} +Inf\n#\\9', max_size=120), st.booleans())
def test_any_text_is_metrics_or_one_line(text: str, is_known: bool) -> None:
    line = URL
    try:
        read(f"vllm:{text}", "vllm" if is_known else "unknown")
    except DecodescopeError as error:
        line = str(error)
    assert line.startswith(URL)
    assert line.isprintable()


def test_without_prometheus_client_the_error_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client.parser", None)
    with pytest.raises(MissingRequirement, match=r"pip install '\.\[attach\]'"):
        read("vllm:num_requests_running 1\n")
