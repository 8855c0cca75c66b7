"""Steps on given tokens against whole forward passes of the same text."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, ModelError
from decodescope.variants.model.workload import DecodeWorkload
from tests.variants.step_builds import BUILDS, Build

BATCH = 2
CONTEXT = 5
FORCED = 30
WORKLOAD = DecodeWorkload(BATCH, CONTEXT, FORCED, "fp32")

Load = Callable[..., Any]


EVERY_STEP = pytest.mark.parametrize("build", BUILDS.values(), ids=list(BUILDS))


def text_of(length: int) -> torch.Tensor:
    return torch.randint(3, 97, (BATCH, length), generator=torch.Generator().manual_seed(11))


def forced_from(step: Any, text: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Logits [batch, last - first, vocabulary] of decoding the text's tokens [first, last)."""
    return torch.stack([step.forced_step(text[:, at]) for at in range(first, last)], dim=1)


@EVERY_STEP
@pytest.mark.parametrize("architecture", ["llama", "qwen3", "mistral"])
def test_logits_equal_one_forward_pass_over_the_text(
    load_small: Load, build: Build, architecture: str
) -> None:
    loaded = load_small(architecture)
    text = text_of(CONTEXT + FORCED)
    expected = loaded.model(input_ids=text, use_cache=False).logits[:, CONTEXT:]
    step = build(loaded, WORKLOAD)
    step.prefill(text[:, :CONTEXT])
    logits = forced_from(step, text, CONTEXT, CONTEXT + FORCED)
    torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)
    assert step.position == CONTEXT + FORCED


@EVERY_STEP
def test_forcing_the_greedy_ids_is_the_greedy_decode(load_small: Load, build: Build) -> None:
    step = build(load_small("llama"), WORKLOAD)
    ids = step.prefill(text_of(CONTEXT))
    greedy = [step.step() for _ in range(10)]
    step.reset(CONTEXT)
    for expected in greedy:
        ids = step.forced_step(ids).argmax(-1)
        assert torch.equal(ids, expected)


@EVERY_STEP
def test_steps_go_on_from_forced_ids_and_repeat_them(load_small: Load, build: Build) -> None:
    loaded = load_small("llama")
    text = text_of(CONTEXT + 9)
    step = build(loaded, WORKLOAD)
    step.prefill(text[:, :CONTEXT])
    logits = forced_from(step, text, CONTEXT, CONTEXT + 9)
    followed = [step.step() for _ in range(6)]

    other = build(loaded, DecodeWorkload(BATCH, CONTEXT + 9, 6, "fp32"))
    assert torch.equal(other.prefill(text), logits[:, -1].argmax(-1))
    assert all(torch.equal(ids, other.step()) for ids in followed)

    step.reset(CONTEXT + 4)
    assert torch.equal(step.step(), logits[:, 4].argmax(-1))


@EVERY_STEP
def test_ids_and_logits_are_nobody_elses(load_small: Load, build: Build) -> None:
    step = build(load_small("llama"), WORKLOAD)
    step.prefill(text_of(CONTEXT))
    given = text_of(1)[:, 0]
    logits = step.forced_step(given)
    kept = logits.clone()
    given.fill_(-1)
    step.step()
    assert torch.equal(logits, kept)
    step.reset(CONTEXT)
    assert torch.equal(step.step(), kept.argmax(-1))


@EVERY_STEP
def test_misuse_is_reported(load_small: Load, build: Build) -> None:
    step = build(load_small("llama"), DecodeWorkload(BATCH, CONTEXT, 1, "fp32"))
    with pytest.raises(ModelError, match="before prefill"):
        step.forced_step(text_of(1)[:, 0])
    step.prefill(text_of(CONTEXT))
    with pytest.raises(InputError, match=r"shape \[1\].* batch 2"):
        step.forced_step(text_of(1)[:1, 0])
    step.forced_step(text_of(1)[:, 0])
    with pytest.raises(ModelError, match="built for 6 positions"):
        step.forced_step(text_of(1)[:, 0])
