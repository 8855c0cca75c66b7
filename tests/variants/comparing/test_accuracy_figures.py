"""The accuracy formulas against brute force, position by position in plain Python and NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.schema.run_report import Accuracy, Interval
from decodescope.variants.comparing.accuracy import accuracy_of, unusable


def score(logits: torch.Tensor, reference: torch.Tensor, next_ids: torch.Tensor) -> Accuracy:
    return accuracy_of(logits, reference, next_ids, "the reference", "a text")


def drawn(positions: int, vocabulary: int, seed: int, scale: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(positions, vocabulary, generator=generator) * scale


def ids(positions: int, vocabulary: int, seed: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, vocabulary, (positions,), generator=generator)


def brute_force(logits: torch.Tensor, reference: torch.Tensor, next_ids: torch.Tensor) -> Accuracy:
    positions = len(logits)
    kls: list[float] = []
    agreed = loss = reference_loss = 0.0
    for row in range(positions):
        p, q = (_softmax(matrix[row].numpy()) for matrix in (reference, logits))
        kls.append(sum(float(a) * math.log(float(a) / float(b)) for a, b in zip(p, q, strict=True)))
        agreed += float(int(np.argmax(p)) == int(np.argmax(q)))
        loss -= math.log(float(q[next_ids[row]]))
        reference_loss -= math.log(float(p[next_ids[row]]))
    difference = np.linalg.norm(logits.numpy().astype(np.float64) - reference.numpy())
    perplexity = math.exp(loss / positions)
    return Accuracy(
        reference="the reference",
        text="a text",
        positions=positions,
        logit_rel_error=float(difference / np.linalg.norm(reference.numpy().astype(np.float64))),
        kl=sum(kls) / positions,
        top1_agreement=agreed / positions,
        perplexity=perplexity,
        perplexity_ratio=perplexity / math.exp(reference_loss / positions),
        kl_by_block=tuple(float(np.mean(part)) for part in np.array_split(kls, min(16, positions))),
    )


def _softmax(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row.astype(np.longdouble) - row.max())
    return weights / weights.sum()


@settings(max_examples=30)
@given(st.integers(1, 35), st.integers(2, 67), st.integers(0, 10**6), st.floats(0.01, 8))
def test_formulas_equal_brute_force(
    positions: int, vocabulary: int, seed: int, scale: float
) -> None:
    reference = drawn(positions, vocabulary, seed)
    logits = reference + drawn(positions, vocabulary, seed + 1, scale)
    given_ids = ids(positions, vocabulary, seed)
    expected = brute_force(logits, reference, given_ids)
    found = score(logits, reference, given_ids)
    for name in ("logit_rel_error", "kl", "perplexity", "perplexity_ratio", "kl_by_block"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12)
    assert found.top1_agreement == expected.top1_agreement
    assert (found.positions, found.reference, found.text) == (positions, "the reference", "a text")


def test_equal_logits_have_no_error() -> None:
    logits = drawn(33, 101, 1)
    found = score(logits.clone(), logits, ids(33, 101))
    assert (found.logit_rel_error, found.kl) == (0, 0)
    assert (found.top1_agreement, found.perplexity_ratio) == (1, 1)
    assert found.perplexity_ratio_interval == Interval(1.0, 1.0, 0.95)
    assert found.kl_interval == Interval(0.0, 0.0, 0.95)


def test_a_constant_moves_the_logits_but_not_the_distribution() -> None:
    reference = drawn(20, 50, 2)
    found = score(reference + 4, reference, ids(20, 50))
    shift = 4 * math.sqrt(20 * 50)
    assert found.logit_rel_error == pytest.approx(shift / reference.double().norm().item())
    assert found.kl == pytest.approx(0, abs=1e-6)
    assert found.top1_agreement == 1


def test_uniform_logits_have_the_vocabulary_as_perplexity() -> None:
    reference = drawn(17, 64, 3)
    found = score(torch.zeros(17, 64), reference, ids(17, 64))
    assert found.logit_rel_error == 1
    assert found.perplexity == pytest.approx(64)


def test_one_wrong_row_costs_its_share() -> None:
    reference = torch.eye(8) * 10
    logits = reference.clone()
    logits[3] = reference[4]
    found = score(logits, reference, torch.arange(8))
    assert found.top1_agreement == 7 / 8
    assert found.logit_rel_error == pytest.approx(math.sqrt(200 / 800))


def test_swapping_the_sides_swaps_the_direction_of_the_divergence() -> None:
    sharp, flat = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    there = score(flat, sharp, torch.tensor([0])).kl
    back = score(sharp, flat, torch.tensor([0])).kl
    assert there == pytest.approx(brute_force(flat, sharp, torch.tensor([0])).kl)
    assert there != pytest.approx(back, rel=0.1)


def test_low_precision_logits_are_not_rounded_again() -> None:
    reference = drawn(5, 40, 9)
    half = reference.to(torch.bfloat16)
    assert score(half, reference, ids(5, 40)) == score(half.float(), reference, ids(5, 40))


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_one_broken_logit_makes_figures_unusable(poison: float) -> None:
    reference = drawn(40, 30, 4)
    logits = reference.clone()
    logits[39, 29] = poison
    broken = score(logits, reference, ids(40, 30))
    bad = unusable(broken)
    assert any(name.startswith("logit_rel_error") for name in bad)
    assert broken.perplexity_ratio_interval is broken.kl_interval is None
    assert "perplexity_ratio" in broken.positions_needed
    assert unusable(score(reference, reference, ids(40, 30))) == []


def test_a_perplexity_beyond_floats_is_infinite() -> None:
    logits = torch.zeros(2, 3)
    logits[:, 0] = 1e6
    found = score(logits, drawn(2, 3, 1), torch.tensor([1, 2]))
    assert found.perplexity == math.inf
    assert unusable(found) == ["perplexity inf", "perplexity_ratio inf"]


def test_a_reference_of_zeros_gives_no_relative_error() -> None:
    found = score(torch.ones(2, 3), torch.zeros(2, 3), torch.tensor([0, 1]))
    assert math.isnan(found.logit_rel_error)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ModelError, match=r"\[2, 4\], the reference \[2, 3\]"):
        score(torch.zeros(2, 4), torch.zeros(2, 3), torch.tensor([0, 1]))
