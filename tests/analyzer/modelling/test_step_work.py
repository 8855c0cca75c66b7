"""Bytes and FLOPs of roles: by hand, against brute force, and against our own captures."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import bundled_models, read_model_config
from decodescope.analyzer.modelling.shape import StepShape
from decodescope.analyzer.modelling.step_work import (
    layer_work,
    link_bytes,
    outside_work,
    role_work,
    step_bytes,
    step_flops,
    touched_experts,
)
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from decodescope.analyzer.schema.report import CaptureInfo
from tests.helpers.modelling.parameters import parameter_count

# `--weights` for the formats of our variants, which quantise lm_head as well.
_WEIGHTS = {
    "fp8_e4m3": "fp8,head=fp8",
    "fp8_e5m2": "fp8,head=fp8",
    "w8a8": "fp8,head=fp8",
    "fp8_e5m2_cast": "fp8-tensor,head=fp8-tensor",
    "int8": "int8,head=int8",
    "int4": "int4,head=int4,embedding=int8",
    "kv_fp8_e4m3": "bf16,kv=fp8",
}


def captures() -> list[CaptureInfo]:
    found = [
        window.message.capture
        for path in bundled_recordings()
        for window in read_recording(path).windows
        if window.message.capture.tp == 1
    ]
    assert len({one.variant for one in found}) >= 8
    return found


def test_the_bytes_of_our_own_captures() -> None:
    """The same weights, and K and V of one more position: here those of the new token count."""
    for capture in captures():
        shape = read_model_config(capture.model)
        words = capture.variant.split("+")
        weights = model_weights(
            shape, next((_WEIGHTS[one] for one in words if one in _WEIGHTS), "")
        )
        positions = capture.position + (capture.steps - 1) // 2
        work = role_work(shape, StepShape(capture.batch, capture.batch * positions), weights)
        expected = step_bytes(work)
        if capture.model == "gpt-oss-20b@random":
            # Rows of its experts, 2,880 codes and a scale for 32 each, have 1,536 bytes. And a
            # window holds the new token here, which is not read from the cache.
            expected += 24 * 4 * (3 * 2880) * (1536 - 2880 // 2 - 2880 // 32)
            expected -= 12 * 2 * 8 * 64 * 2
        assert expected == pytest.approx(capture.bytes_per_step, rel=2e-4)
        if not set(words) & {"fp8_e5m2_cast", "kv_fp8_e4m3"}:
            # Without scales, and with scales of K and V: 0.01 % off.
            assert expected == capture.bytes_per_step


def test_the_flops_of_our_own_captures() -> None:
    for capture in captures():
        shape = read_model_config(capture.model)
        positions = capture.position + (capture.steps - 1) // 2 + 1
        step = StepShape(capture.batch, capture.batch * positions)
        flops = step_flops(role_work(shape, step, model_weights(shape)))
        assert flops == capture.flops_per_step


def test_llama_8b_by_hand() -> None:
    """At batch 1 every weight but the embedding table, one row of it, and 128 positions."""
    shape = read_model_config("llama-3.1-8b")
    work = role_work(shape, StepShape(1, 128), model_weights(shape))
    table = 128_256 * 4096
    kv = 32 * 2 * 8 * 128 * 2 * 128
    assert step_bytes(work) == 2 * (8_030_261_248 - table + 4096) + kv == 15_026_634_752
    products = 8_030_261_248 - 2 * table - 65 * 4096 + table
    assert step_flops(work) == 2 * products + 32 * 4 * 32 * 128 * 128
    assert work["gate_up"].weight_bytes == 2 * 32 * 2 * 14336 * 4096
    assert work["attention"].kv_bytes == kv
    assert work["activation"].bytes == 32 * 3 * 14336 * 2
    assert work["head"].activation_bytes == (4096 + 128_256) * 2


def test_gpt_oss_20b_by_hand() -> None:
    """Batch 32 over 55,086 positions: 31.55 of 32 experts, and windows of 128 in half the
    layers."""
    shape = read_model_config("gpt-oss-20b")
    assert touched_experts(32, 4, 32) == pytest.approx(31.5538, abs=1e-3)
    work = role_work(shape, StepShape(32, 55_086), model_weights(shape))
    assert work["attention"].kv_bytes == 12 * (55_086 + 32 * 128) * 2 * 8 * 64 * 2
    gate_up, down = 2880 * 5760, 2880 * 2880
    expert = (gate_up + down) * 17 // 32 + (5760 + 2880) * 2
    experts = 24 * 32 * (1 - 0.875**32) * expert
    assert work["experts"].weight_bytes == pytest.approx(experts, rel=1e-9)
    assert work["experts"].flops == 24 * 2 * 32 * 4 * (gate_up + down)
    assert work["router"].weight_bytes == 24 * (32 * 2880 + 32) * 2
    assert work["head"].weight_bytes == 201_088 * 2880 * 2
    # Of 32 experts nearly all are read: the step reads almost the checkpoint (13.76 GB), without
    # the embedding table, with K and V.
    assert step_bytes(work) == pytest.approx(13.9e9, rel=0.01)


def test_qwen3_moe_by_hand() -> None:
    shape = read_model_config("qwen3-30b-a3b")
    work = role_work(shape, StepShape(1, 1), model_weights(shape))
    assert work["experts"].weight_bytes == 48 * 8 * 3 * 768 * 2048 * 2
    # 3.3 billion parameters work on a token, the embedding table included.
    active = (step_bytes(work) - work["attention"].kv_bytes) / 2 + 151_936 * 2048
    assert active == pytest.approx(3.3e9, rel=0.02)


def test_deepseek_v3_by_hand() -> None:
    """Every layer reads 576 elements a position, whatever the number of heads."""
    shape = read_model_config("deepseek-v3")
    work = role_work(shape, StepShape(4, 4000), model_weights(shape, "fp8-block,kv=bf16"))
    assert work["attention"].kv_bytes == 61 * 4000 * 576 * 2
    assert work["attention"].flops == 61 * 4000 * 128 * 2 * (576 + 512)
    one = role_work(shape, StepShape(1, 1), model_weights(shape, "bf16"))
    # 37 billion parameters work on a token.
    assert (step_bytes(one) / 2 + 129_280 * 7168) == pytest.approx(37e9, rel=0.02)
    prefill = role_work(shape, StepShape(1, 100, 100), model_weights(shape, "bf16"))
    assert prefill["attention"].flops == 61 * 5050 * 128 * 2 * (192 + 128)


def test_mixtral_reads_two_experts_for_one_token_and_all_for_many() -> None:
    shape = read_model_config("mixtral-8x7b")
    expert = 32 * 3 * 14336 * 4096 * 2
    one = role_work(shape, StepShape(1, 10), model_weights(shape))
    many = role_work(shape, StepShape(1000, 10_000), model_weights(shape))
    assert one["experts"].weight_bytes == 2 * expert
    assert many["experts"].weight_bytes == 8 * expert


@pytest.mark.parametrize(("count", "chosen", "tokens"), [(8, 2, 1), (32, 4, 32), (128, 8, 5)])
def test_the_expectation_of_touched_experts(count: int, chosen: int, tokens: int) -> None:
    """Against draws of `chosen` distinct experts for each token."""
    generator = np.random.default_rng(tokens)
    draws = 4000
    scores = generator.random((draws, tokens, count))
    picked = np.argpartition(scores, chosen, axis=2)[:, :, :chosen]
    touched = np.zeros((draws, count), dtype=bool)
    np.put_along_axis(touched, picked.reshape(draws, -1), True, axis=1)
    mean = touched.sum(axis=1).mean()
    assert mean == pytest.approx(touched_experts(count, chosen, tokens), rel=0.01)


@pytest.mark.parametrize("name", sorted(bundled_models()))
@pytest.mark.parametrize("batch", [1, 7])
def test_weights_of_a_step_that_touches_all_are_all_weights(name: str, batch: int) -> None:
    """With every expert in use, a step reads each parameter once, and rows of the table."""
    shape = read_model_config(name)
    if shape.experts is not None:
        shape = replace(shape, experts=replace(shape.experts, per_token=shape.experts.count))
    work = role_work(shape, StepShape(batch, 10 * batch), model_weights(shape, shape.dtype))
    read = sum(one.weight_bytes for one in work.values()) // shape.element_bytes
    inputs = len(shape.layers) * shape.layer_input
    table = shape.vocabulary * (inputs + (0 if shape.tied else shape.hidden))
    assert read - batch * (shape.hidden + inputs) == parameter_count(shape) - table
    assert all(one.activation_bytes >= 0 and one.flops >= 0 for one in work.values())


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b", "gemma-2-9b"])
def test_a_step_is_the_sum_of_its_layers(name: str) -> None:
    shape = read_model_config(name)
    step, weights = StepShape(3, 900), model_weights(shape)
    parts = [layer_work(shape, layer, step, weights) for layer in range(len(shape.layers))]
    parts.append(outside_work(shape, step, weights))
    whole = role_work(shape, step, weights)
    for role, work in whole.items():
        mine = [part[role] for part in parts if role in part]
        assert work.bytes == sum(one.bytes for one in mine)
        assert work.flops == sum(one.flops for one in mine)
    assert {role for part in parts for role in part} == set(whole)


def test_linear_attention_reads_a_state_of_fixed_size() -> None:
    shape = read_model_config("qwen3-next-80b-a3b")
    weights = model_weights(shape)
    short, long = (layer_work(shape, 0, StepShape(2, n), weights) for n in (10, 100_000))
    assert short["attention"] == long["attention"]
    assert short["attention"].kv_bytes == 2 * 2 * 32 * 128 * 128 * 4
    assert "kv_write" not in short
    full = layer_work(shape, 3, StepShape(2, 10), weights)
    assert full["attention"].kv_bytes == 10 * 2 * 2 * 256 * 2


def test_tensor_parallelism_divides_weights_and_heads() -> None:
    shape = read_model_config("llama-3.1-70b")
    step, weights = StepShape(8, 8000), model_weights(shape)
    whole = role_work(shape, step, weights)
    for devices in (2, 8):
        part = role_work(shape, step, weights, devices)
        for role in ("qkv", "o", "gate_up", "down", "head"):
            assert part[role].weight_bytes * devices == whole[role].weight_bytes
            assert part[role].flops * devices == whole[role].flops
        assert part["attention"].kv_bytes * devices == whole["attention"].kv_bytes
        assert part["norm"] == whole["norm"]
    # Fewer K and V heads than devices: each device has a copy of one.
    sixteen = role_work(shape, step, weights, 16)
    assert sixteen["attention"].kv_bytes * 8 == whole["attention"].kv_bytes
    for devices in (0, -1, 3):
        with pytest.raises(InputError):
            role_work(shape, step, weights, devices)
    phi = read_model_config("phi-4")
    with pytest.raises(InputError, match=r"num_key_value_heads \(10\) cannot be split over 4"):
        role_work(phi, step, weights, 4)


def test_devices_send_sums_and_the_squares_of_norms_of_all_heads() -> None:
    llama, olmo = (read_model_config(name) for name in ("llama-3.2-1b", "olmo-2-1b"))
    # 16 layers of 2048 in bf16: two sums a layer, of which each of 4 devices sends 2 * 3 / 4.
    sums = 16 * 3 * 2 * 2048 * 2 * 3 // 2
    assert link_bytes(llama, StepShape(3, 30), 4) == sums
    assert link_bytes(olmo, StepShape(3, 30), 4) == sums + 16 * 3 * 8 * 3 // 2


def test_prefill_computes_the_causal_half() -> None:
    shape = read_model_config("llama-3.2-1b")
    weights = model_weights(shape)
    work = role_work(shape, StepShape(1, 1000, 1000), weights)
    assert work["attention"].flops == 16 * 4 * 32 * 64 * 1000 * 1001 // 2
    assert work["qkv"].flops == 1000 * role_work(shape, StepShape(1, 1), weights)["qkv"].flops
    # lm_head works on the last token only.
    assert work["head"] == role_work(shape, StepShape(1, 1), weights)["head"]


@given(st.integers(1, 3), st.integers(1, 50))
def test_work_grows_with_the_batch(batch: int, length: int) -> None:
    shape = read_model_config("gpt-oss-20b")
    weights = model_weights(shape)
    small = role_work(shape, StepShape(batch, batch * length), weights)
    large = role_work(shape, StepShape(batch + 1, (batch + 1) * length), weights)
    for role, work in small.items():
        assert large[role].bytes > work.bytes
        assert large[role].flops >= work.flops


@pytest.mark.parametrize("name", sorted(bundled_models()))
def test_the_work_of_unknown_sizes_is_a_lower_bound(name: str) -> None:
    """The work of a step of unknown requests and positions is a lower bound of any step's work."""
    shape = read_model_config(name)
    weights, rng = model_weights(shape), random.Random(name)
    one = role_work(shape, StepShape(1, 1), weights)
    for _ in range(4):
        batch, tokens = rng.randrange(1, 300), rng.randrange(1, 40)
        queries = batch * tokens
        unknown = role_work(shape, StepShape(1, queries, queries, pairs=queries), weights)
        kv_tokens = sum(rng.randrange(tokens, 9000) for _ in range(batch))
        known = role_work(shape, StepShape(batch, kv_tokens, queries), weights)
        for role, work in known.items():
            # A prefill of latent attention expands K and V, and a state is read for each request.
            assert one[role].weight_bytes <= unknown[role].weight_bytes <= work.weight_bytes
            assert one[role].kv_bytes <= work.kv_bytes
            if shape.latent is None or tokens > 1:
                assert unknown[role].kv_bytes <= work.kv_bytes
                assert unknown[role].flops <= work.flops
