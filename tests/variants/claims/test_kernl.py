"""kernl's claims at small sizes: every entrant is right, and a broken one gets no ratio."""

from collections.abc import Callable

import pytest
import torch

from decodescope.variants.bench import kernel_bench
from decodescope.variants.claims.claim import Measured, Setup
from decodescope.variants.claims.kernl import rms_norm, rope
from decodescope.variants.claims.kernl.layer import Layer
from decodescope.variants.claims.kernl.sequences import halved, paired
from decodescope.variants.claims.racing import Racing
from decodescope.variants.steps.fused.tiling.rules import interpreter_tiles
from tests.helpers.fake_clock import FakeClock

LAYER = Layer(
    hidden=64, heads=4, head_dim=16, intermediate=96, tokens=(1, 4), device="cpu",
    tiles=interpreter_tiles,
)  # fmt: skip

Measure = Callable[[Setup, Layer], Measured]
CLAIMS: dict[str, Measure] = {"rope": rope.measure, "rms_norm": rms_norm.measure}


@pytest.fixture(autouse=True)
def few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_bench, "MIN_LAUNCHES", 2)


@torch.no_grad()
def measured(measure: Measure) -> Measured:
    racing = Racing(FakeClock(1e6), 256, 1e12, {"fp16": 1e15}, 1)  # type: ignore[arg-type]
    return measure(Setup(racing, lambda text: None), LAYER)


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_entrant_computes_the_same(claim: str) -> None:
    result = measured(CLAIMS[claim])
    assert [race.size.partition(",")[0] for race in result.races] == [
        "1 token (decode)",
        "4 tokens",
    ]
    for race in result.races:
        for entrant in race.entrants:
            assert entrant.error is None, f"{race.size}, {entrant.name}: {entrant.error}"
            assert entrant.relative_error is not None
            assert entrant.traffic_bytes is not None
            assert entrant.bytes_moved is not None
            assert entrant.traffic_bytes >= entrant.bytes_moved
    for row in result.rows:
        assert row.error is None
        assert row.explanation


def test_pairs_are_put_in_the_order_of_halves_and_back() -> None:
    x = torch.arange(12.0).view(2, 6)
    assert paired(x).tolist() == [[0, 3, 1, 4, 2, 5], [6, 9, 7, 10, 8, 11]]
    assert torch.equal(*halved((paired(x),)), x)


def test_a_rotation_in_the_wrong_order_of_pairs_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rope, "paired", lambda x: x)
    result = measured(rope.measure)
    refused = {one.name for race in result.races for one in race.entrants if one.error}
    assert refused == {rope.COMPLEX, rope.REAL}
    assert all(row.measured is None for row in result.rows)


def test_a_norm_without_its_weight_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def weightless(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    monkeypatch.setattr(rms_norm, "rms_norm", weightless)
    result = measured(rms_norm.measure)
    assert all(row.measured is None for row in result.rows)
    assert all(row.error and row.error.startswith(rms_norm.PYTORCH) for row in result.rows)
