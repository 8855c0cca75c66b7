"""The reference against transformers' filters, published numbers and the softmax itself."""

import math
from typing import Any

import pytest
import torch
from transformers.generation.logits_process import TopKLogitsWarper, TopPLogitsWarper

from decodescope.kernels.sampling.reference import (
    choose_reference,
    gumbel_noise_reference,
    kept_tokens,
    philox,
    probability_mass_reference,
    scaled_logits_reference,
)

WORD = 0xFFFFFFFF


def random_logits(batch: int, vocabulary: int, tied: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch * 10_000 + vocabulary)
    logits = 3 * torch.randn(batch, vocabulary, generator=generator)
    return (2 * logits).round() / 2 if tied else logits


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((WORD,) * 4, WORD << 32 | WORD, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0_A4093822,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_philox_gives_the_published_words(
    counter: tuple[int, ...], key: int, expected: str
) -> None:
    words = philox(key, tuple(torch.tensor([word]) for word in counter))
    assert " ".join(f"{int(word):08x}" for word in words) == expected


def test_noise_matches_float64() -> None:
    noise = gumbel_noise_reference(11, 5, torch.empty(3, 50_001))
    counters = torch.arange(12_501)
    zeros = torch.zeros_like(counters)
    for sequence in range(3):
        words = philox(11, (counters, zeros + 5, zeros + sequence, zeros))
        v = torch.stack(words, -1).reshape(-1)[:50_001].float() * 2.0**-32
        expected = -(-(-v.clamp(max=1 - 2.0**-24).double()).log1p()).log()
        torch.testing.assert_close(noise[sequence].double(), expected, rtol=4e-7, atol=4e-7)
    assert noise.mean().item() == pytest.approx(0.5772, abs=0.02)
    assert noise.std().item() == pytest.approx(math.pi / math.sqrt(6), abs=0.02)


def test_mass_is_the_exponential_in_fixed_point() -> None:
    scaled = torch.cat([-torch.linspace(0, 40, 10_001), torch.tensor([-torch.inf])])[None]
    expected = scaled.double().exp() * 2**40
    mass = probability_mass_reference(scaled)
    assert mass[0, 0] == 2**40
    torch.testing.assert_close(mass.double(), expected, rtol=3e-7, atol=1)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("top_p", [None, 0.01, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("top_k", [None, 1, 2, 50, 1000])
def test_kept_tokens_are_those_of_transformers(
    top_k: int | None, top_p: float | None, tied: bool
) -> None:
    logits = random_logits(8, 487, tied)
    logits[3, 7:300] = -torch.inf
    expected = logits
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = TopPLogitsWarper(top_p)(None, expected)
    kept = torch.where(kept_tokens(logits, top_k, top_p), logits, -torch.inf)
    if tied and top_p is not None:
        # An unstable sort there decides which of equal logits are kept, but not how many.
        kept, expected = kept.sort(-1).values, expected.sort(-1).values
    assert torch.equal(kept, expected)


def test_equal_logits_are_cut_to_the_smallest_set() -> None:
    kept = kept_tokens(torch.zeros(1, 8), None, 0.5)
    assert kept.tolist() == [[False] * 4 + [True] * 4]
    assert kept_tokens(torch.zeros(1, 8), 2, 0.5).sum() == 4


@pytest.mark.parametrize(
    ("temperature", "filters"),
    [
        (1.0, {}),
        (0.5, {}),
        (3.0, {}),
        (1.0, {"top_k": 5}),
        (1.3, {"top_p": 0.7}),
        (2.0, {"top_k": 9, "top_p": 0.8}),
    ],
)
def test_draws_follow_the_softmax(temperature: float, filters: dict[str, Any]) -> None:
    draws, vocabulary = 40_000, 23
    row = random_logits(1, vocabulary)
    ids = choose_reference(row.expand(draws, -1), 17, temperature=temperature, seed=2024, **filters)
    counts = torch.bincount(ids, minlength=vocabulary).double()
    kept = kept_tokens(
        scaled_logits_reference(row, temperature), filters.get("top_k"), filters.get("top_p")
    )
    weights = torch.where(kept, row.double() / temperature, -torch.inf)[0].softmax(-1)
    expected = draws * weights
    assert counts[expected == 0].sum() == 0
    likely = expected >= 5
    rest = torch.stack([counts[~likely].sum(), expected[~likely].sum()])
    observed = torch.cat([counts[likely], rest[:1]])
    foreseen = torch.cat([expected[likely], rest[1:].clamp(min=1e-9)])
    chi_square = ((observed - foreseen) ** 2 / foreseen).sum().item()
    freedom = int(likely.sum())
    # Wilson-Hilferty: the 99.99 % quantile of chi-square.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.72 * math.sqrt(2 / (9 * freedom))) ** 3
    assert chi_square < limit


def test_draws_at_successive_positions_follow_the_softmax_too() -> None:
    row = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    ids = torch.cat([choose_reference(row, i, temperature=1.0, seed=3) for i in range(1000)])
    shares = torch.bincount(ids, minlength=5) / 1000
    torch.testing.assert_close(shares, row[0].softmax(-1), atol=0.04, rtol=0)
    pairs = torch.bincount(5 * ids[:-1] + ids[1:], minlength=25) / 999
    independent = (row[0].softmax(-1)[:, None] * row[0].softmax(-1)).flatten()
    torch.testing.assert_close(pairs, independent, atol=0.04, rtol=0)


@pytest.mark.parametrize("filters", [{"top_k": 1}, {"top_p": 1e-6}, {"top_k": 3, "top_p": 1e-6}])
def test_narrow_filters_are_greedy(filters: dict[str, Any]) -> None:
    logits = random_logits(16, 301)
    for position in range(10):
        ids = choose_reference(logits, position, temperature=5.0, **filters)
        assert torch.equal(ids, logits.argmax(-1))


def test_low_temperature_is_greedy() -> None:
    logits = random_logits(16, 301)
    assert torch.equal(choose_reference(logits, 1, temperature=1e-5), logits.argmax(-1))


def test_wide_filters_change_nothing() -> None:
    logits = random_logits(64, 97)
    plain = choose_reference(logits, 4, temperature=2.0, seed=8)
    for filters in ({"top_k": 97}, {"top_k": 10**6}, {"top_p": 1.0}, {"top_k": 97, "top_p": 1.0}):
        ids = choose_reference(logits, 4, temperature=2.0, seed=8, **filters)
        assert torch.equal(ids, plain)


def test_impossible_tokens_are_not_drawn() -> None:
    logits = torch.full((200, 33), -torch.inf)
    logits[:, 5] = -50.0
    logits[:, 6] = torch.nan
    logits[:, 20] = -50.0
    ids = choose_reference(logits, 0, temperature=1.0, top_k=10, top_p=0.99)
    assert set(ids.tolist()) == {5, 20}
    logits[:, 30] = torch.inf
    assert set(choose_reference(logits, 0, temperature=0.1).tolist()) == {30}
    assert choose_reference(torch.full((1, 4), -torch.inf), 0, temperature=1.0).item() == 0


def test_seed_position_and_sequence_each_change_the_draw() -> None:
    logits = torch.zeros(64, 1000)
    base = choose_reference(logits, 10, temperature=1.0, seed=1)
    assert torch.equal(base, choose_reference(logits, 10, temperature=1.0, seed=1))
    assert len(base.unique()) > 50
    for position, seed in ((11, 1), (10, 2), (10, 1 + (1 << 40))):
        other = choose_reference(logits, position, temperature=1.0, seed=seed)
        assert (other == base).sum() < 4
    assert torch.equal(choose_reference(logits[:5], 10, temperature=1.0, seed=1), base[:5])
