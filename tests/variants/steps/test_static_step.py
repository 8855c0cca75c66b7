"""The static step under Dynamo, whose backend only counts what it is asked to compile."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx

from decodescope.analyzer.errors import ModelError
from decodescope.variants.comparing.accuracy import forced_logits
from decodescope.variants.comparing.accuracy_text import ScoredText
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.compiled_step import StaticStep, compile_and_record
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers.families import ORIGINAL_MAX
from tests.helpers.fused_steps import ids_of, load_family, prompt_of

CONTEXT, POSITIONS = 7, 5
Load = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_compiled() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_a_model_that_cannot_be_captured_is_one_line(load_small: Load) -> None:
    def branches(ids: torch.Tensor, cache: Any) -> torch.Tensor:
        return ids if ids.sum() > 0 else -ids

    workload = DecodeWorkload(1, CONTEXT, POSITIONS, "fp32")
    compiled = torch.compile(branches, backend="eager", fullgraph=True)
    step = StaticStep(load_small("llama"), workload, lambda forward: compiled)
    with pytest.raises(ModelError, match=r"^variant compiled: torch\.compile cannot capture this"):
        compile_and_record(step, workload)


@pytest.mark.parametrize("batch", [1, 2])
def test_scoring_runs_what_a_run_has_compiled(load_small: Load, batch: int) -> None:
    compiled: list[fx.GraphModule] = []

    def count(graph: fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    workload = DecodeWorkload(batch, CONTEXT, POSITIONS, "fp32")
    step = StaticStep(
        load_small("llama"),
        workload,
        lambda forward: torch.compile(forward, backend=count, fullgraph=True, dynamic=False),
    )
    step.prefill(torch.zeros((batch, CONTEXT), dtype=torch.int64))
    step.step()
    step.step()
    assert len(compiled) == 1
    ids = torch.arange(3, 4 + CONTEXT + POSITIONS).expand(3, -1)
    logits = forced_logits(step, ScoredText(ids, CONTEXT, POSITIONS, "a text"), batch)
    assert len(logits) == 3 * POSITIONS
    assert len(compiled) == 1


@pytest.mark.parametrize("family", ["rope-longrope", "rope-dynamic"])
def test_frequencies_that_change_with_the_length_are_captured(family: str) -> None:
    """Across the length at which they change, once the workload's rotations are known."""
    workload = DecodeWorkload(2, ORIGINAL_MAX - 2, POSITIONS, "fp32")
    loaded = load_family(family, "cpu")
    static = StaticStep(
        loaded,
        workload,
        lambda forward: torch.compile(forward, backend="eager", fullgraph=True, dynamic=False),
    )
    steps = static, EagerStep(loaded, workload)
    first, expected = (step.prefill(prompt_of(loaded, workload)) for step in steps)
    assert torch.equal(first, expected)
    for seed in range(POSITIONS - 1):
        ids = ids_of(loaded, 2, seed)
        logits, expected = (step.forced_step(ids) for step in steps)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
