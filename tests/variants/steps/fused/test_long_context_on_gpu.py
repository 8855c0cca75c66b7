"""The fused step deep in a long cache, where sums are long and offsets large."""

from collections.abc import Iterator

import pytest
import torch

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers import families, gpu_memory
from tests.helpers.fused_steps import assert_logits_agree, fused, ids_of, prompt_of

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

CAPACITY = 32_768
STEPS = 6


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with gpu_memory.alone():
        yield


def load_attentive(family: str) -> LoadedModel:
    """A family whose queries are large: at 32,000 equal weights no single row would matter."""
    model = families.build(family, device="cuda")
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.mul_(4)
    return LoadedModel(model, None, "random", family, None)


@pytest.mark.parametrize(
    ("family", "batch"),
    [("llama-tied", 1), ("rope-llama3", 2), ("rope-yarn", 1), ("mistral", 1), ("qwen3", 2)],
)
def test_logits_at_the_end_of_a_32k_cache(family: str, batch: int) -> None:
    loaded = load_attentive(family)
    workload = DecodeWorkload(batch, CAPACITY - STEPS, STEPS, "fp32")
    prompt = prompt_of(loaded, workload)
    step, eager = fused(loaded, workload, "fused+graph"), EagerStep(loaded, workload)
    assert torch.equal(step.prefill(prompt), eager.prefill(prompt))
    # The first forced step is launched and captures the graph that the others replay.
    for seed in range(STEPS):
        ids = ids_of(loaded, batch, seed)
        assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    with pytest.raises(ModelError, match=f"built for {CAPACITY} positions"):
        step.step()
    step.reset(CAPACITY - 1)
    last = step.step()
    step.reset(CAPACITY - 1)
    assert torch.equal(step.step(), last)
