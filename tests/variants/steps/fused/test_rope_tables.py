from typing import Any

import pytest
import torch

from decodescope.variants.steps.fused.rope_tables import rope_table
from tests.helpers.families import FAMILIES, ORIGINAL_MAX, build

ROPES = [name for name in FAMILIES if name.startswith("rope-")] + ["llama2", "qwen3", "mistral"]
POSITIONS = 2 * ORIGINAL_MAX + 3


def rotary_state(model: Any) -> dict[str, Any]:
    """All that the rotary module remembers, tensors copied."""
    kept = vars(model.model.rotary_emb) | dict(model.model.rotary_emb.named_buffers())
    return {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in kept.items()
        if not key.startswith("_") and key != "config"
    }


def same(one: Any, two: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two)
    return bool(one == two)


def stepped(model: Any, positions: range, device: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """cos and sin as a model's decode steps ask for them, one position after the other."""
    x = torch.empty(1, dtype=torch.float32, device=device)
    rows = [
        model.model.rotary_emb(x, torch.tensor([[position]], device=device))
        for position in positions
    ]
    return [(cos[0, 0], sin[0, 0]) for cos, sin in rows]


@pytest.mark.parametrize("name", ROPES)
def test_rows_are_bitwise_those_of_decode_steps(name: str, device: str) -> None:
    table = rope_table(build(name, device=device), POSITIONS, device)
    half = table.head_dim // 2
    assert table.positions == POSITIONS
    steps = stepped(build(name, device=device), range(POSITIONS), device)
    for position, (cos, sin) in enumerate(steps):
        assert torch.equal(torch.cat((table.cos[position],) * 2), cos), position
        assert torch.equal(torch.cat((table.sin[position],) * 2), sin), position
    assert cos.shape == (2 * half,)


@pytest.mark.parametrize("name", ROPES)
@pytest.mark.parametrize("seen", [1, ORIGINAL_MAX, POSITIONS + 9])
def test_what_the_model_has_seen_neither_matters_nor_changes(
    name: str, seen: int, device: str
) -> None:
    fresh = rope_table(build(name, device=device), POSITIONS, device)
    model = build(name, device=device)
    stepped(model, range(seen - 1, seen), device)
    before = rotary_state(model)
    table = rope_table(model, POSITIONS, device)
    after = rotary_state(model)
    assert torch.equal(table.cos, fresh.cos)
    assert torch.equal(table.sin, fresh.sin)
    assert before.keys() == after.keys()
    assert all(same(before[key], after[key]) for key in before)


@pytest.mark.parametrize("name", ["rope-dynamic", "rope-longrope"])
@pytest.mark.parametrize("positions", [1, ORIGINAL_MAX - 1, ORIGINAL_MAX, ORIGINAL_MAX + 1])
def test_a_table_that_ends_near_the_original_length(name: str, positions: int, device: str) -> None:
    model = build(name, device=device)
    whole = rope_table(model, POSITIONS, device)
    table = rope_table(model, positions, device)
    assert torch.equal(table.cos, whole.cos[:positions])
    assert torch.equal(table.sin, whole.sin[:positions])


def test_attention_scaling_is_multiplied_in(device: str) -> None:
    model = build("rope-yarn", device=device)
    scaling = model.model.rotary_emb.attention_scaling
    assert scaling > 1.1
    table = rope_table(model, 5, device)
    lengths = (table.cos.square() + table.sin.square()).sqrt()
    torch.testing.assert_close(lengths, torch.full_like(lengths, scaling))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_models_dtype_does_not_round_the_table(dtype: torch.dtype, device: str) -> None:
    wide = rope_table(build("llama2", device=device), POSITIONS, device)
    narrow = rope_table(build("llama2", dtype, device=device), POSITIONS, device)
    assert torch.equal(narrow.cos, wide.cos)
    assert torch.equal(narrow.sin, wide.sin)


def test_far_positions_keep_their_precision(device: str) -> None:
    model = build("llama2", device=device)
    table = rope_table(model, 70_000, device)
    angle = 69_999 * model.model.rotary_emb.inv_freq.float()
    torch.testing.assert_close(table.cos[-1], angle.cos(), rtol=0, atol=0)
