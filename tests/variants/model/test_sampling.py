"""Sampled decoding: the accepted settings, and that logits and seed determine the drawn tokens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs

from decodescope.analyzer.comparing.comparability import workload_differences
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.analyzer.text.formatting import sampling_words
from decodescope.kernels.sampling.reference import choose_reference
from decodescope.variants.measuring.request import read_request
from decodescope.variants.model.workload import DecodeWorkload, default_dtype
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.eager_step import EagerStep
from tests.variants.step_builds import BUILDS

SAMPLING = SamplingSettings(1.4, top_k=60, top_p=0.9, seed=21)
CONTEXT, STEPS = 5, 12
WORKLOAD = DecodeWorkload(2, CONTEXT, STEPS, "fp32", SAMPLING)

Load = Callable[..., Any]


def prompt_of(batch: int, context: int) -> torch.Tensor:
    return torch.randint(3, 97, (batch, context), generator=torch.Generator().manual_seed(3))


def decoded(step: Any, count: int) -> torch.Tensor:
    return torch.stack([step.step() for _ in range(count)], dim=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.0}, "--temperature 0: must be at least 1e-05, or 0 for greedy"),
        ({"temperature": -1.0}, "--temperature -1"),
        ({"temperature": float("inf")}, "--temperature inf"),
        ({"temperature": float("nan")}, "--temperature nan"),
        ({"top_k": 0}, "--top-k 0: must be at least 1"),
        ({"top_p": 0.0}, "--top-p 0: must be above 0 and at most 1"),
        ({"top_p": 1.01}, "--top-p 1.01"),
        ({"top_p": float("nan")}, "--top-p nan"),
        ({"seed": -1}, "--seed -1"),
        ({"seed": 1 << 63}, "--seed 9223372036854775808: must be from 0"),
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        DecodeWorkload(sampling=structs.replace(SAMPLING, **wrong))
    assert str(caught.value).startswith(message)


def test_a_request_puts_its_sampling_into_the_workload() -> None:
    config = WorkerConfig(variant="eager", batch=1, tokens=4, model="tiny", device="cpu")
    assert read_request(config).workload.sampling is None
    sampled = structs.replace(config, sampling=SAMPLING)
    assert read_request(sampled).workload.sampling == SAMPLING
    greedy = structs.replace(config, sampling=SamplingSettings(0.0, None, None, 0))
    assert read_request(greedy).workload.sampling is None
    wrong = structs.replace(config, sampling=SamplingSettings(-1.0, None, None, 0))
    with pytest.raises(InputError, match="--temperature -1"):
        read_request(wrong)


def test_each_device_has_its_usual_dtype() -> None:
    assert default_dtype("cuda") == "bf16"
    assert default_dtype("cpu") == "fp32"


def test_sampling_is_described_and_compared() -> None:
    words = "temperature 1.4, top-k 60, top-p 0.9, seed 21"
    assert sampling_words(SAMPLING) == words
    assert sampling_words(SamplingSettings(2.0, None, None, 0)) == "temperature 2, seed 0"

    class Run:
        def __init__(self, sampling: SamplingSettings | None) -> None:
            self.sampling = sampling

    runs: list[Any] = [Run(None), Run(SAMPLING)]
    assert workload_differences(*runs) == (f"sampling greedy against {words}",)
    assert workload_differences(runs[1], runs[1]) == ()


@pytest.mark.parametrize("variant", list(BUILDS))
def test_logits_and_seed_determine_the_tokens_of_a_step(load_small: Load, variant: str) -> None:
    loaded = load_small("llama")
    prompt = prompt_of(2, CONTEXT)
    step = BUILDS[variant](loaded, WORKLOAD)
    ids = torch.cat([step.prefill(prompt)[:, None], decoded(step, STEPS)], dim=1)

    sequence = torch.cat([prompt, ids], dim=1)
    logits = loaded.model(sequence).logits
    for index in range(STEPS + 1):
        position = CONTEXT - 1 + index
        expected = choose_reference(logits[:, position], position, **structs.asdict(SAMPLING))
        assert torch.equal(ids[:, index], expected)
    assert not torch.equal(ids[:, :-1], logits[:, CONTEXT - 1 : -2].argmax(-1))

    step.reset(CONTEXT + 4)
    assert torch.equal(decoded(step, 5), ids[:, 5:10])
    assert torch.equal(step.prefill(prompt), ids[:, 0])
    assert torch.equal(decoded(step, 3), ids[:, 1:4])


def test_another_seed_gives_other_tokens(load_small: Load) -> None:
    loaded = load_small("llama")
    prompt = prompt_of(2, CONTEXT)
    outputs = []
    for seed in (21, 22):
        step = EagerStep(loaded, replace(WORKLOAD, sampling=structs.replace(SAMPLING, seed=seed)))
        step.prefill(prompt)
        outputs.append(decoded(step, STEPS))
    assert not torch.equal(*outputs)


def test_equal_prompts_draw_different_tokens(load_small: Load) -> None:
    step = EagerStep(load_small("llama"), WORKLOAD)
    step.prefill(prompt_of(1, CONTEXT).expand(2, -1))
    ids = decoded(step, STEPS)
    assert not torch.equal(ids[0], ids[1])


@contextmanager
def no_synchronisation() -> Iterator[None]:
    """Inside, every torch operation that waits for the device raises."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # from torch.compile's imports and the sync debug mode
@pytest.mark.parametrize("variant", ["eager", "compiled"])
def test_variants_sample_on_the_gpu_without_synchronising(load_small: Load, variant: str) -> None:
    loaded = load_small("llama")
    loaded.model.to("cuda")
    step = build_variant(variant, loaded, WORKLOAD, "cuda")
    prompt = prompt_of(2, CONTEXT)
    step.prefill(prompt)
    step.step()
    ids = step.prefill(prompt)
    for position in range(CONTEXT, CONTEXT + STEPS):
        logits = step.forced_step(ids)
        expected = choose_reference(logits.cpu(), position, **structs.asdict(SAMPLING))
        # Repeat the step from the same ids, now with its own choice of token.
        step.reset(position)
        with no_synchronisation():
            ids = step.step()
        assert torch.equal(ids.cpu(), expected)
