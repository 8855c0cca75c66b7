from functools import partial

import pytest
import torch
from transformers.models.glm4.modeling_glm4 import apply_rotary_pos_emb as glm_rotation
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as partial_rotation

from decodescope.kernels.ops.rope import RopeTable, Rotate, rotated_reference
from tests.helpers.kernel_inputs import at, random, relative_error
from tests.helpers.refusals import refuses

# One rounding: at most half a unit of fp16, a whole one of bf16, which the interpreter truncates.
LIMITS = {torch.float32: 3e-7, torch.float16: 5e-4, torch.bfloat16: 8e-3}


def table(
    positions: int, head_dim: int, device: str, scaling: float = 1.0, distance: int = 0
) -> RopeTable:
    frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos() * scaling, angles.sin() * scaling
    return RopeTable(cos.float().to(device), sin.float().to(device), distance)


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(
    ("batch", "heads", "kv_heads", "head_dim", "position"),
    [(1, 4, 2, 64, 9), (3, 5, 1, 80, 1), (1, 1, 1, 2, 3), (2, 3, 3, 18, 10)],
)
def test_every_head_is_rotated(
    batch: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    position: int,
    dtype: torch.dtype,
    device: str,
) -> None:
    rope = table(11, head_dim, device, scaling=1.25)
    q = random(batch, heads, head_dim, dtype=dtype, device=device)
    k = random(batch, kv_heads, head_dim, dtype=dtype, device=device)
    expected_q = rotated_reference(q, rope, position)
    expected_k = rotated_reference(k, rope, position)
    q_again, k_again = q.clone(), k.clone()
    Rotate(q, k, rope, at(position, device)).launch()
    Rotate(q_again, k_again, rope, at(position, device)).launch()
    assert relative_error(q, expected_q) < LIMITS[dtype]
    assert relative_error(k, expected_k) < LIMITS[dtype]
    assert torch.equal(q, q_again)
    assert torch.equal(k, k_again)


def test_agrees_with_transformers_in_fp32(device: str) -> None:
    rope = table(8, 32, device)
    q, k = random(2, 4, 32, device=device), random(2, 2, 32, device=device)
    row = slice(5, 6)
    cos = torch.cat((rope.cos[row], rope.cos[row]), dim=-1)
    sin = torch.cat((rope.sin[row], rope.sin[row]), dim=-1)
    expected = apply_rotary_pos_emb(q[:, :, None], k[:, :, None], cos[None], sin[None])
    Rotate(q, k, rope, at(5, device)).launch()
    torch.testing.assert_close(q, expected[0][:, :, 0], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(k, expected[1][:, :, 0], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("head_dim", "rotary"), [(32, 24), (40, 2), (32, 32)])
@pytest.mark.parametrize("neighbours", [False, True])
def test_a_part_of_a_head_and_neighbours_turn_as_in_transformers(
    head_dim: int, rotary: int, neighbours: bool, device: str
) -> None:
    apply = glm_rotation if neighbours else partial_rotation
    angles = random(6, rotary // 2, device=device)
    cos, sin = torch.ones(6, head_dim // 2), torch.zeros(6, head_dim // 2)
    cos[:, : rotary // 2], sin[:, : rotary // 2] = angles.cos(), angles.sin()
    rope = RopeTable(cos.to(device), sin.to(device), 1 if neighbours else rotary // 2)
    q, k = random(2, 4, head_dim, device=device), random(2, 2, head_dim, device=device)
    row = (torch.cat((angles[5:], angles[5:]), dim=-1)[None]).to(device)
    expected = apply(q[:, :, None], k[:, :, None], row.cos(), row.sin())
    references = rotated_reference(q, rope, 5), rotated_reference(k, rope, 5)
    Rotate(q, k, rope, at(5, device)).launch()
    for out, theirs, reference in zip((q, k), expected, references, strict=True):
        torch.testing.assert_close(out, theirs[:, :, 0], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(reference.float(), theirs[:, :, 0], atol=1e-6, rtol=1e-6)


def test_rotations_keep_lengths_and_add_up(device: str) -> None:
    rope = table(30, 64, device)
    q, k = random(1, 3, 64, device=device), random(1, 1, 64, device=device)
    twice, k_twice = q.clone(), k.clone()
    once, k_once = q.clone(), k.clone()
    Rotate(once, k_once, rope, at(29, device)).launch()
    Rotate(twice, k_twice, rope, at(12, device)).launch()
    Rotate(twice, k_twice, rope, at(17, device)).launch()
    torch.testing.assert_close(twice, once, atol=3e-6, rtol=0)
    torch.testing.assert_close(once.norm(dim=-1), q.norm(dim=-1), atol=1e-5, rtol=0)


def test_scores_depend_only_on_the_distance(device: str) -> None:
    rope = table(100, 16, device)
    q, k = random(1, 1, 16, device=device), random(1, 2, 16, device=device)[:, 1:].contiguous()
    scores = []
    for shift in (0, 40):
        turned_q, turned_k, other = q.clone(), k.clone(), q.clone()
        Rotate(turned_q, other, rope, at(50 + shift, device)).launch()
        Rotate(other, turned_k, rope, at(43 + shift, device)).launch()
        scores.append((turned_q * turned_k).sum().item())
    assert scores[0] == pytest.approx(scores[1], abs=1e-5)


def test_position_0_changes_nothing(device: str) -> None:
    q, k = random(1, 2, 64, device=device), random(1, 1, 64, device=device)
    turned_q, turned_k = q.clone(), k.clone()
    Rotate(turned_q, turned_k, table(4, 64, device), at(0, device)).launch()
    assert torch.equal(turned_q, q)
    assert torch.equal(turned_k, k)


@pytest.mark.parametrize("position", [4, 5, 2**31 - 1, -1])
def test_a_position_outside_the_table_changes_nothing(position: int, device: str) -> None:
    q, k = random(1, 2, 64, device=device), random(1, 1, 64, device=device)
    turned_q, turned_k = q.clone(), k.clone()
    longer = table(5, 64, device)
    # None of its rows is the rotation by zero, which would also change nothing.
    Rotate(
        turned_q, turned_k, RopeTable(longer.cos[1:], longer.sin[1:]), at(position, device)
    ).launch()
    assert torch.equal(turned_q, q)
    assert torch.equal(turned_k, k)


def test_heads_of_a_fused_projection(device: str) -> None:
    batch, heads, kv_heads, head_dim = 3, 4, 2, 24
    projection = random(batch, (heads + 2 * kv_heads) * head_dim, device=device)
    before = projection.clone()
    every = projection.view(batch, -1, head_dim)
    q, k, v = every.split([heads, kv_heads, kv_heads], dim=1)
    rope = table(7, head_dim, device)
    expected = rotated_reference(every, rope, 6)
    Rotate(q, k, rope, at(6, device)).launch()
    assert relative_error(q, expected[:, :heads]) < LIMITS[torch.float32]
    assert relative_error(k, expected[:, heads : heads + kv_heads]) < LIMITS[torch.float32]
    assert torch.equal(v, before.view_as(every)[:, heads + kv_heads :])


def test_table_reports_its_sizes() -> None:
    rope = table(6, 40, "cpu")
    assert (rope.positions, rope.head_dim) == (6, 40)


test_refuses_tables = refuses(
    (partial(RopeTable, cos, sin), complaint)
    for cos, sin, complaint in [
        (torch.zeros(3), torch.zeros(3), "must be .positions, head_dim / 2."),
        (torch.zeros(0, 2), torch.zeros(0, 2), "not empty"),
        (torch.zeros(3, 2).half(), torch.zeros(3, 2).half(), "cos .*must be torch.float32"),
        (torch.zeros(3, 2), torch.zeros(3, 3), r"sin .*\[3, 2\]"),
        (torch.zeros(3, 2), torch.zeros(2, 3).T, "contiguous"),
    ]
)
test_refuses_distances = refuses(
    [(partial(RopeTable, *torch.zeros(2, 3, 4), 5), "a distance of 5: must be 1 to 4")]
)


test_refuses = refuses(
    (Rotate(q, k, table(3, 8, "cpu"), position).launch, complaint)
    for q, k, position, complaint in [
        (torch.zeros(1, 8), torch.zeros(1, 1, 8), at(0, "cpu"), "batch, heads, head_dim"),
        (torch.zeros(1, 1, 6), torch.zeros(1, 1, 6), at(0, "cpu"), "head_dim 6.*rotates 8"),
        (torch.zeros(1, 1, 8), torch.zeros(2, 1, 8), at(0, "cpu"), r"k .*\[1, 1, 8\]"),
        (torch.zeros(1, 1, 8), torch.zeros(1, 1, 8).half(), at(0, "cpu"), "k is torch.float16"),
        (torch.zeros(1, 1, 8), torch.zeros(1, 8, 1).mT, at(0, "cpu").long(), "position"),
        (torch.zeros(1, 1, 8).int(), torch.zeros(1, 1, 8).int(), at(0, "cpu"), "q is torch.int32"),
        (torch.zeros(1, 1, 16)[..., ::2], torch.zeros(1, 1, 8), at(0, "cpu"), "last one must be 1"),
    ]
)
