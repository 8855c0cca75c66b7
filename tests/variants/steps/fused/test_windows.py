"""The families with sliding windows where positions pass the border of a window, and after 300 of
them: logits and greedy tokens of transformers."""

import pytest
import torch

from decodescope.variants.model.workload import DecodeWorkload
from tests.helpers import families
from tests.helpers.fused_steps import assert_logits_agree, both, ids_of, load_family

WINDOWED = [name for name, config in families.CONFIGS.items() if config.get("sliding_window")]
# Its rows lie in two of attention's blocks.
WIDE = 100


def assert_agrees(
    family: str, device: str, window: int, workload: DecodeWorkload, spec: str = "fused"
) -> None:
    """At each position of `workload`, with random ids; the last token is the step's own."""
    loaded = load_family(family, device, sliding_window=window)
    step, eager = both(loaded, workload, spec)
    for seed in range(workload.new_tokens - 1):
        ids = ids_of(loaded, workload.batch, seed)
        assert_logits_agree(step.forced_step(ids), eager.forced_step(ids))
    assert torch.equal(step.step(), eager.step())


def test_the_families_with_windows_are_known() -> None:
    assert {"gpt-oss", "gemma2", "gemma3", "olmo3", "cohere2", "mistral"} < {*WINDOWED}


@pytest.mark.parametrize("family", WINDOWED)
def test_steps_across_the_border_of_a_window(family: str, device: str) -> None:
    workload = DecodeWorkload(1, families.WINDOW - 1, 3, "fp32")
    assert_agrees(family, device, families.WINDOW, workload)


@pytest.mark.parametrize("family", WINDOWED)
def test_steps_after_300_positions(family: str, device: str) -> None:
    assert_agrees(family, device, WIDE, DecodeWorkload(1, 299, 3, "fp32"))


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("family", WINDOWED)
def test_a_graph_passes_every_position_up_to_300(family: str, batch: int) -> None:
    workload = DecodeWorkload(batch, 3, 300, "fp32")
    assert_agrees(family, "cuda", WIDE, workload, "fused+graph")
