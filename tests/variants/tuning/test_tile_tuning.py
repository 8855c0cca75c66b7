"""What `tune` does around the tuner: passes, both times, cache and table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.tile import Tile
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.quantized_weights import Quantization
from decodescope.variants.model.quantizing import is_quantized
from decodescope.variants.model.source import ModelSource
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import build_fused
from decodescope.variants.steps.fused.tiling.shapes import (
    StepShapes,
    StepTiles,
    TiledOperation,
    step_shapes,
)
from decodescope.variants.steps.fused.tiling.tile_table import (
    ChosenTiles,
    cached_tiles,
    tiles_by_key,
)
from decodescope.variants.steps.fused.tiling.tiles import interpreter_tiles
from decodescope.variants.steps.fused.tiling.tuner import REPLAYS
from decodescope.variants.tuning import tile_tuning
from decodescope.variants.tuning.report import TuningReport
from decodescope.variants.tuning.tile_tuning import launches_of, random_model, run_tuning, time_both
from tests.helpers import families
from tests.helpers.fake_clock import FakeClock
from tests.helpers.sizes import DENSE_OPERATIONS, H200

START: StepTiles = dict.fromkeys(DENSE_OPERATIONS, Tile(1, 64))
FUSED = VariantSpec("fused")
WORKLOAD = DecodeWorkload(1, 20, 8, "fp32")


def silent(_: str) -> None:
    pass


def small_model(device: str) -> LoadedModel:
    model = families.build("llama2", torch.float32, device=device)
    return LoadedModel(model, None, "random", "llama2", 64)


class Tuner:
    """Quarters the head's rows, and keeps which operations it was given."""

    def __init__(self) -> None:
        self.operations: set[tuple[TiledOperation, ...]] = set()

    def __call__(
        self,
        launch_with: object,
        start: StepTiles,
        operations: tuple[TiledOperation, ...],
        *_: object,
    ) -> tuple[StepTiles, tuple[()]]:
        self.operations.add(operations)
        head = start["head"]
        return {**start, "head": replace(head, rows=head.rows // 4)}, ()


def test_both_steps_are_timed_in_turn() -> None:
    launched: list[StepTiles] = []
    other: StepTiles = {**START, "o": Tile(2, 64)}
    clock = FakeClock(*[8.0] * REPLAYS, *[6.0] * REPLAYS)
    before, after = time_both(lambda tiles: lambda: launched.append(tiles), START, other, clock)
    assert launched == [START, other] * tile_tuning.ROUNDS
    assert clock.captured == 2
    assert (before.median, after.median) == (8.0, 6.0)
    assert len(before.rounds) == tile_tuning.ROUNDS


@pytest.mark.parametrize("spec", ["fused", "fused+kv_fp8_e4m3", "fused+kv_fp8_e5m2"])
def test_steps_are_launched_at_one_position_over_random_rows(spec: str, device: str) -> None:
    step = build_fused(VariantSpec.parse(spec), small_model(device), WORKLOAD, device)
    launch = launches_of(step, 23)(step.plan.tiles)
    for cache in (step.plan.cache.k, step.plan.cache.v):
        assert all(one.float().std() > 0.9 for one in cache)
        assert not torch.equal(cache[0].float(), cache[-1].float())
    launch()
    launch()
    assert int(step.plan.buffers.position) == 24


def measured_tiles(shapes: StepShapes, gpu: object) -> ChosenTiles:
    """Tiles that the interpreter runs in a moment."""
    return ChosenTiles(interpreter_tiles(shapes), dict.fromkeys(DENSE_OPERATIONS, "table"))


@pytest.fixture
def tuned_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str) -> LoadedModel:
    """A model that is tuned by fakes: no clock, one change, a cache folder of its own."""
    loaded = small_model(device)
    monkeypatch.setattr(tile_tuning, "random_model", lambda *_: loaded)
    monkeypatch.setattr(tile_tuning, "this_target_gpu", lambda: H200)
    monkeypatch.setattr(tile_tuning, "tiles_for", measured_tiles)
    monkeypatch.setattr(tile_tuning, "ROUNDS", 2)
    monkeypatch.setattr(tile_tuning, "DeviceClock", lambda: FakeClock(3.0))
    monkeypatch.setattr(tile_tuning, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(tile_tuning, "tune_model", Tuner())
    return loaded


def test_the_tiles_found_are_kept_and_written_down(
    tuned_model: LoadedModel, tmp_path: Path
) -> None:
    said: list[str] = []
    result = run_tuning("llama-3.2-1b@random", WORKLOAD, FUSED, 1, False, said.append)
    parts = tile_tuning.fused_model(tuned_model.model)
    shapes = step_shapes(parts, 1, WORKLOAD.cache_length)
    start = interpreter_tiles(shapes)
    assert result.position == 24
    head = start["head"]
    assert result.tiles == {**start, "head": replace(head, rows=head.rows // 4)}
    expected = tiles_by_key(shapes, result.tiles)
    assert cached_tiles(H200, tmp_path / "cache") == expected
    assert any(line.startswith(f"kept for later runs in {tmp_path / 'cache'}") for line in said)
    assert isinstance(result, TuningReport)
    assert result.before_over_after.rounds == (1.0,) * tile_tuning.ROUNDS


@pytest.mark.parametrize("unmeasured", [(), ("head",), ("head", "attention")])
def test_measured_operations_are_measured_again_only_if_all_are(
    tuned_model: LoadedModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unmeasured: tuple[TiledOperation, ...],
) -> None:
    def chosen(shapes: StepShapes, gpu: object) -> ChosenTiles:
        sources = {name: "default" if name in unmeasured else "table" for name in DENSE_OPERATIONS}
        return ChosenTiles(interpreter_tiles(shapes), sources)  # type: ignore[arg-type]

    tuner = Tuner()
    monkeypatch.setattr(tile_tuning, "tiles_for", chosen)
    monkeypatch.setattr(tile_tuning, "tune_model", tuner)
    said: list[str] = []
    run_tuning("llama-3.2-1b@random", WORKLOAD, FUSED, 1, False, said.append)
    expected = set(unmeasured or DENSE_OPERATIONS)
    assert set(*tuner.operations) == expected
    assert {key.operation for key in cached_tiles(H200, tmp_path / "cache")} == expected
    reported = [line for line in said if line.startswith("measured before: ")]
    assert bool(reported) == bool(unmeasured)


@pytest.fixture
def folder(tmp_path: Path) -> ModelSource:
    """A checkpoint's configuration without weights."""
    (tmp_path / "config.json").write_text(json.dumps(families.FAMILIES["llama-biased"]))
    return ModelSource("here", "folder", folder=tmp_path)


def test_a_model_is_built_without_its_weights(folder: ModelSource, device: str) -> None:
    workload = DecodeWorkload(1, 40, 24, "bf16")
    loaded = random_model(folder, workload, device, FUSED)
    assert (loaded.name, loaded.weights, loaded.max_context) == ("here", "random", 64)
    weights = loaded.model.model.layers[0].mlp.up_proj.weight
    assert weights.dtype == torch.bfloat16
    assert weights.device.type == device
    assert weights.float().std() > 0
    assert not weights.requires_grad


def test_a_model_is_built_in_the_format_that_is_tuned(folder: ModelSource, device: str) -> None:
    spec = VariantSpec.parse("fused+int8+head16")
    loaded = random_model(folder, DecodeWorkload(1, 40, 24, "bf16"), device, spec)
    assert is_quantized(loaded.model, Quantization("int8", head=False))


def test_the_part_of_a_rank_is_built(folder: ModelSource, device: str) -> None:
    assert folder.folder is not None
    even = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128}
    fields = families.FAMILIES["llama-biased"] | even
    (folder.folder / "config.json").write_text(json.dumps(fields))
    workload = DecodeWorkload(1, 40, 24, "bf16")
    whole = random_model(folder, workload, device, FUSED)
    spec = replace(FUSED, all_reduce="none")
    part = random_model(folder, workload, device, spec, Ranks(0, 2))
    shapes, parts = (
        step_shapes(tile_tuning.fused_model(each.model), 1, 64) for each in (whole, part)
    )
    halves = replace(shapes, heads=2, kv_heads=1, intermediate=64, vocab=-(-shapes.vocab // 2))
    assert parts == halves
    step = build_fused(spec, part, workload, device)
    step.plan.buffers.x.fill_(torch.nan)
    tile_tuning.launches_of(step, 41)(step.plan.tiles)()
    assert step.plan.buffers.x.isfinite().all()


def test_a_workload_that_is_too_long_for_the_model_is_refused(
    folder: ModelSource, device: str
) -> None:
    with pytest.raises(ModelError, match="allows 64 positions"):
        random_model(folder, DecodeWorkload(1, 40, 25, "bf16"), device, FUSED)
