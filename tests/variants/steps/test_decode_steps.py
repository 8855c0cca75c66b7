"""The decode steps against transformers' own greedy generation, and against each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.compiled_step import StaticStep, build_compiled, compile_and_record
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers import families
from tests.helpers.fused_steps import load_family
from tests.variants.step_builds import BUILDS, Build, static

ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral")
BATCH = 2
CONTEXT = 11
NEW_TOKENS = 60
WORKLOAD = DecodeWorkload(BATCH, CONTEXT, NEW_TOKENS, "fp32")

Load = Callable[..., Any]


def traced(loaded: Any, workload: DecodeWorkload) -> StaticStep:
    """As the compiled variant, with a compiler that only traces: one graph, for every position."""

    def compile_once(forward: Any) -> Any:
        return torch.compile(forward, backend="eager", fullgraph=True, dynamic=False)

    return StaticStep(loaded, workload, compile_once)


def prompt_of(batch: int, context: int) -> torch.Tensor:
    return torch.randint(3, 97, (batch, context), generator=torch.Generator().manual_seed(3))


def generated(loaded: Any, prompt: torch.Tensor, tokens: int) -> torch.Tensor:
    """transformers' greedy continuation, [batch, tokens]."""
    output = loaded.model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        min_new_tokens=tokens,
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
    )
    return output[:, prompt.shape[1] :]


def decoded(step: Any, count: int) -> torch.Tensor:
    return torch.stack([step.step() for _ in range(count)], dim=1)


def copying(loaded: Any, workload: DecodeWorkload) -> EagerStep:
    """As the eager variant on a GPU."""
    step = EagerStep(loaded, workload)
    step._experts_way = "batched_mm"
    return step


@pytest.mark.parametrize("build", [copying, static, traced])
@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3-moe-of-all"])
def test_every_way_to_multiply_by_experts_gives_the_same_tokens(family: str, build: Build) -> None:
    torch.compiler.reset()
    loaded = load_family(family, "cpu")
    workload = DecodeWorkload(2, 5, 8, "fp32")
    prompt = families.prompt_ids(family, 2, 5)
    expected, step = EagerStep(loaded, workload), build(loaded, workload)
    assert step._experts_way == "batched_mm"
    assert expected._experts_way is None
    assert torch.equal(step.prefill(prompt), expected.prefill(prompt))
    assert torch.equal(decoded(step, 8), decoded(expected, 8))
    assert loaded.model.config._experts_implementation == "eager"


@pytest.fixture
def without_eos() -> dict[str, Any]:
    """Greedy generation must not stop early: the decode step does not stop either."""
    return {"eos_token_id": None}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_equal_greedy_generation(
    load_small: Load, without_eos: dict[str, Any], architecture: str
) -> None:
    loaded = load_small(architecture, **without_eos)
    expected = generated(loaded, prompt_of(BATCH, CONTEXT), NEW_TOKENS)
    assert len(expected.unique()) > 10
    for variant, build in BUILDS.items():
        goes_back = (architecture, variant) != ("mistral", "eager")
        assert_decodes(build(loaded, WORKLOAD), expected, goes_back)


def assert_decodes(step: Any, expected: torch.Tensor, goes_back: bool) -> None:
    prompt = prompt_of(BATCH, CONTEXT)
    first = step.prefill(prompt)
    assert step.position == CONTEXT
    tokens = torch.cat([first[:, None], decoded(step, NEW_TOKENS - 1)], dim=1)
    assert tokens.dtype == torch.int64
    assert torch.equal(tokens, expected)
    assert step.position == CONTEXT + NEW_TOKENS - 1

    step.reset(CONTEXT)
    assert step.position == CONTEXT
    assert torch.equal(decoded(step, 20), expected[:, 1:21])
    if goes_back:
        step.reset(CONTEXT + 7)
        assert torch.equal(decoded(step, 20), expected[:, 8:28])

    again = step.prefill(prompt)
    assert torch.equal(again, first)
    assert torch.equal(decoded(step, 5), expected[:, 1:6])


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_the_prompt_before_leaves_no_trace(load_small: Load, architecture: str) -> None:
    loaded = load_small(architecture)
    for build in BUILDS.values():
        used, fresh = build(loaded, WORKLOAD), build(loaded, WORKLOAD)
        used.prefill(prompt_of(BATCH, CONTEXT).flip(1))
        decoded(used, NEW_TOKENS)
        used.prefill(prompt_of(BATCH, CONTEXT))
        fresh.prefill(prompt_of(BATCH, CONTEXT))
        assert torch.equal(decoded(used, 20), decoded(fresh, 20))


@contextmanager
def recorded_logits(model: Any) -> Iterator[list[torch.Tensor]]:
    logits: list[torch.Tensor] = []
    handle = model.lm_head.register_forward_hook(
        lambda module, args, output: logits.append(output[:, -1].clone())
    )
    yield logits
    handle.remove()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("context", [1, 63])
@pytest.mark.parametrize("variant", [name for name in BUILDS if name != "eager"])
def test_logits_equal_eager_ones_at_awkward_positions(
    load_small: Load, architecture: str, context: int, variant: str
) -> None:
    loaded = load_small(architecture)
    workload = DecodeWorkload(BATCH, context, 71 - context, "fp32")
    prompt = prompt_of(BATCH, context)
    by_variant: dict[str, list[torch.Tensor]] = {}
    for name in (variant, "eager"):
        step = BUILDS[name](loaded, workload)
        with recorded_logits(loaded.model) as logits:
            step.prefill(prompt)
            decoded(step, workload.new_tokens)
        by_variant[name] = logits
    for position in (1, 63, 64, 65, 70):
        if position < context:
            continue
        logits, expected = (one[position - context + 1] for one in by_variant.values())
        torch.testing.assert_close(logits, expected, atol=2e-5, rtol=1e-4)


def test_static_reset_repeats_any_position(load_small: Load) -> None:
    loaded = load_small("llama")
    step = static(loaded, DecodeWorkload(1, 1, 70, "fp32"))
    step.prefill(prompt_of(1, 1))
    tokens = decoded(step, 70)
    for position in (70, 65, 64, 63, 1):
        with recorded_logits(loaded.model) as logits:
            step.reset(position)
            assert torch.equal(step.step(), tokens[:, position - 1])
            step.reset(position)
            step.step()
        assert torch.equal(logits[0], logits[1])


def test_a_full_sliding_window_goes_back_to_the_prompts_end_only(load_small: Load) -> None:
    loaded = load_small("mistral", sliding_window=16)
    step = EagerStep(loaded, WORKLOAD)
    step.prefill(prompt_of(BATCH, CONTEXT))
    tokens = decoded(step, 30)
    with pytest.raises(InputError, match="sliding window"):
        step.reset(CONTEXT + 9)
    assert step.position == CONTEXT + 30
    step.reset(CONTEXT)
    assert torch.equal(decoded(step, 30), tokens)


def test_a_prompt_longer_than_the_window_can_be_repeated(load_small: Load) -> None:
    loaded = load_small("mistral", sliding_window=8)
    prompt = prompt_of(BATCH, CONTEXT)
    steps = [build(loaded, WORKLOAD) for build in BUILDS.values()]
    for step in steps:
        step.prefill(prompt)
    first = decoded(steps[0], 20)
    assert all(torch.equal(decoded(step, 20), first) for step in steps[1:])
    for step in steps:
        step.reset(CONTEXT)
        assert torch.equal(decoded(step, 20), first)


# A norm of heads, and a window: what the others have is traced with these.
@pytest.mark.parametrize("architecture", ["qwen3", "mistral"])
def test_one_traced_graph_serves_every_position(
    load_small: Load, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(torch._dynamo.config, "error_on_recompile", True)
    loaded = load_small(architecture)
    steps = [traced(loaded, WORKLOAD), EagerStep(loaded, WORKLOAD)]
    compile_and_record(steps[0], WORKLOAD)
    for step in steps:
        step.prefill(prompt_of(BATCH, CONTEXT))
    compiled, eager = (decoded(step, NEW_TOKENS) for step in steps)
    assert torch.equal(compiled, eager)
    steps[0].reset(CONTEXT + 3)
    assert torch.equal(decoded(steps[0], 5), eager[:, 3:8])
    torch._dynamo.reset()


@pytest.mark.parametrize("build", BUILDS.values(), ids=list(BUILDS))
def test_misuse_is_reported(load_small: Load, build: Build) -> None:
    step = build(load_small("llama"), DecodeWorkload(BATCH, 4, 3, "fp32"))
    with pytest.raises(ModelError, match="before prefill"):
        step.step()
    with pytest.raises(InputError, match=r"prompt of shape \[2, 5\]"):
        step.prefill(prompt_of(BATCH, 5))
    step.prefill(prompt_of(BATCH, 4))
    ids = [step.step() for _ in range(3)]
    before = [tensor.clone() for tensor in ids]
    with pytest.raises(ModelError, match="built for 7 positions"):
        step.step()
    for position in (3, 8):
        with pytest.raises(InputError, match="can only go back to 4 up to 7"):
            step.reset(position)
    step.reset(4)
    step.step()
    assert all(torch.equal(kept, old) for kept, old in zip(ids, before, strict=True))


class Counting(DecodeStep):
    """All that a variant has to write: here every next id is the fed one plus 1."""

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        return ids[:, -1] + 1

    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        return ids + 1, torch.nn.functional.one_hot(ids + 1, 200)

    def _rewind(self, position: int) -> None:
        pass


def test_a_variant_writes_three_methods(load_small: Load) -> None:
    loaded = load_small("llama")
    step, eager = Counting(loaded, WORKLOAD), EagerStep(loaded, WORKLOAD)
    prompt = torch.arange(BATCH * CONTEXT).reshape(BATCH, CONTEXT)
    first = step.prefill(prompt)
    assert first.tolist() == [CONTEXT, 2 * CONTEXT]
    assert torch.equal(decoded(step, 3)[:, -1], first + 3)
    logits = step.forced_step(first)
    assert logits.dtype == torch.float32
    assert torch.equal(logits.argmax(-1), first + 1)
    assert torch.equal(step.step(), first + 2)
    step.reset(CONTEXT + 1)
    assert torch.equal(step.step(), first + 2)
    assert step.position == CONTEXT + 2
    assert step.weight_bytes_read == eager.weight_bytes_read
    assert step.kv_bytes_read(9) == eager.kv_bytes_read(9)
    assert step.ungraphed() is None
    step.annotate_layers(True)


def test_an_older_transformers_is_reported(
    load_small: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LayerWithoutCounter:
        def __init__(self, max_cache_len: int) -> None:
            self.max_cache_len = max_cache_len

    monkeypatch.setattr("decodescope.variants.steps.compiled_step.StaticLayer", LayerWithoutCounter)
    with pytest.raises(MissingRequirement, match=r"transformers 5\.5 or later"):
        static(load_small("llama"), WORKLOAD)


def test_compiled_needs_cuda(load_small: Load) -> None:
    with pytest.raises(MissingRequirement, match="CUDA"):
        build_compiled(load_small("llama"), WORKLOAD, "cpu")
