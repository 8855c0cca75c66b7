"""kernl's claims at small sizes: every entrant is right, and a broken one gets no ratio."""

from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from benchmarks.claims.claim import Measured, Setup
from benchmarks.claims.kernl import feed_forward, projection, rms_norm, rope
from benchmarks.claims.kernl.layer import Layer
from benchmarks.claims.kernl.sequences import PYTORCH, halved, paired, paired_rows
from benchmarks.claims.racing import Racing
from benchmarks.harness import cold_graphs
from benchmarks.harness.launch_clock import LaunchClock
from decodescope.variants.steps.fused.tiling.shapes import StepShapes
from decodescope.variants.steps.fused.tiling.tile_table import ChosenTiles
from decodescope.variants.steps.fused.tiling.tiles import default_tiles, interpreter_tiles
from tests.helpers.fake_clock import FakeClock
from tests.helpers.sizes import DENSE_OPERATIONS

Measure = Callable[[Setup, Layer], Measured]
CLAIMS: dict[str, Measure] = {
    "rope": rope.measure,
    "rms_norm": rms_norm.measure,
    "projection": projection.measure,
    "feed_forward": feed_forward.measure,
}


@pytest.fixture(autouse=True)
def few_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_graphs, "MIN_LAUNCHES", 2)


@pytest.fixture
def layer(device: str) -> Layer:
    def tiles(shapes: StepShapes) -> ChosenTiles:
        chosen = interpreter_tiles(shapes) if device == "cpu" else default_tiles(shapes, 132)
        return ChosenTiles(chosen, dict.fromkeys(DENSE_OPERATIONS, "default"))

    return Layer(64, 4, 16, intermediate=96, tokens=(1, 4), device=device, tiles=tiles)


@torch.no_grad()
def measured(measure: Measure, layer: Layer) -> Measured:
    racing = Racing(FakeClock(1e6), 256, 1e12, {"fp16": 1e15}, 1)  # type: ignore[arg-type]
    return measure(Setup(racing, lambda text: None), layer)


def refused(result: Measured) -> set[str]:
    return {one.name for race in result.races for one in race.entrants if one.error}


@pytest.mark.parametrize("claim", CLAIMS)
def test_every_entrant_computes_the_same(claim: str, layer: Layer) -> None:
    result = measured(CLAIMS[claim], layer)
    sizes = dict.fromkeys(race.size.partition(",")[0] for race in result.races)
    assert list(sizes) == ["1 token (decode)", "4 tokens"]
    for race in result.races:
        ours = [one for one in race.entrants if one.ours]
        assert ours == [race.entrants[-1]]
        for entrant in race.entrants:
            assert entrant.error is None, f"{race.size}, {entrant.name}: {entrant.error}"
            assert entrant.traffic_bytes is not None
            assert entrant.bytes_moved is not None
            assert entrant.traffic_bytes >= ours[0].traffic_bytes >= entrant.bytes_moved
    for row in result.rows:
        assert row.error is None
        assert row.explanation


@pytest.mark.gpu
@pytest.mark.parametrize("claim", CLAIMS)
@torch.no_grad()
def test_every_entrant_has_both_times_on_the_gpu(claim: str, layer: Layer) -> None:
    racing = Racing(LaunchClock(), 1 << 20, 1e12, {"fp16": 1e15}, 2)
    result = CLAIMS[claim](Setup(racing, lambda text: None), layer)
    for race in result.races:
        for entrant in race.entrants:
            assert entrant.error is None, f"{race.size}, {entrant.name}: {entrant.error}"
            assert entrant.device_ns is not None
            assert entrant.launched_ns is not None
    assert all(row.measured is not None for row in result.rows)


@pytest.mark.parametrize(
    ("claim", "launches"),
    [
        # Complex rotation 3, real 8 for each tensor; a norm 6; a product of matrices 1.
        ("rope", [2 * 3, 2 * 8, 1, 3, 8, 1]),
        ("rms_norm", [6, 1, 6, 1]),
        ("projection", [6 + 1 + 8, 1, 37, 25, 1, 15, 2, 3 * (6 + 1) + 2 * 8, 6 + 3 + 2 * 8, 2]),
        ("feed_forward", [6 + 4, 1, 10, 2]),
    ],
)
def test_the_sequences_have_the_launches_of_the_source(
    claim: str, launches: list[int], layer: Layer
) -> None:
    races = measured(CLAIMS[claim], layer).races
    assert [one.launches for race in races for one in race.entrants] == launches


def test_the_bytes_of_a_product_are_its_operands_and_results(layer: Layer) -> None:
    one, three, *_ = measured(projection.measure, layer).races
    # float16 [64, 64] weights, x, norm weight and result, of which three share the second and third
    assert one.entrants[0].bytes_moved == 2 * (64 * 64 + 3 * 64)
    assert three.entrants[0].bytes_moved == 2 * (3 * 64 * 64 + 5 * 64)
    assert three.entrants[0].flops == 2 * 3 * 64 * 64


def test_orders_of_pairs_are_inverse() -> None:
    x = torch.arange(12.0).view(2, 6)
    assert paired(x).tolist() == [[0, 3, 1, 4, 2, 5], [6, 9, 7, 10, 8, 11]]
    assert torch.equal(*halved((paired(x),)), x)
    weight = torch.arange(24.0).view(12, 2)
    by_head = torch.stack([paired(one.t()).t() for one in weight.split(6)])
    assert torch.equal(paired_rows(weight, heads=2), by_head.reshape(12, 2))


@pytest.mark.parametrize(("claim", "function"), [(rope, "paired"), (projection, "paired_rows")])
def test_a_rotation_of_other_pairs_is_refused(
    claim: ModuleType, function: str, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, function, lambda x, *heads: x)
    result = measured(claim.measure, layer)
    theirs = {one.name for race in result.races for one in race.entrants if not one.ours}
    assert refused(result) == theirs
    assert all(row.measured is None for row in result.rows)


def test_a_norm_without_its_weight_is_refused(
    layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weightless(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    monkeypatch.setattr(rms_norm, "rms_norm", weightless)
    result = measured(rms_norm.measure, layer)
    assert refused(result) == {PYTORCH}
    assert all(row.error and row.error.startswith(PYTORCH) for row in result.rows)


@pytest.mark.parametrize("claim", [projection, feed_forward])
def test_a_kernel_of_ours_that_leaves_out_the_norm_gets_no_ratio(
    claim: ModuleType, layer: Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "normed_first", lambda x, norm: ([], x, None))
    result = measured(claim.measure, layer)
    assert refused(result) == {race.entrants[-1].name for race in result.races}
    assert all(row.measured is None for row in result.rows)
