"""The tuner finds the best tiles of a step whose times are known, and noise does not lead it."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import pytest
import torch
from triton.runtime.errors import OutOfResources, PTXASError

from decodescope.kernels.host.tile import Tile
from decodescope.variants.machine.clock import Call, DeviceClock
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import FusedStep, build_fused
from decodescope.variants.steps.fused.tiling import tuner
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation, step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tiles import default_tiles, tile_candidates
from decodescope.variants.steps.fused.tiling.tuner import (
    TunedTiles,
    graph_step_ns,
    tune_model,
    tune_tiles,
)
from tests.helpers import families
from tests.helpers.sizes import DENSE_OPERATIONS, H200, preset_shapes

SHAPES = preset_shapes("llama-3.2-1b")
START = default_tiles(SHAPES, 132)
CHOICES = {operation: tile_candidates(operation, SHAPES, H200) for operation in DENSE_OPERATIONS}


def silent(_: str) -> None:
    pass


class Separable:
    """A step whose time is a sum: 100 µs for each operation, less what its tile saves."""

    def __init__(
        self, saved_ns: Mapping[tuple[TiledOperation, Tile], float], noise: float = 0
    ) -> None:
        self.saved_ns = saved_ns
        self.noise = noise
        self.random = random.Random(5)
        self.measured: list[StepTiles] = []

    def __call__(self, tiles: StepTiles) -> float:
        self.measured.append(tiles)
        saved = (self.saved_ns.get((name, tiles[name]), 0) for name in DENSE_OPERATIONS)
        return (6e5 - sum(saved)) * (1 + self.random.gauss(0, self.noise))


def one_best_each() -> dict[tuple[TiledOperation, Tile], float]:
    """For each operation one tile that is not the first is best, and another one is good."""
    best = {(name, CHOICES[name][-1]): 2e4 for name in DENSE_OPERATIONS}
    return best | {(name, CHOICES[name][1]): 1e4 for name in DENSE_OPERATIONS}


@pytest.mark.parametrize("noise", [0, 0.001])
def test_the_best_of_a_separable_time_is_found(noise: float) -> None:
    found = tune_tiles(START, CHOICES, Separable(one_best_each(), noise), silent)
    assert found.tiles == {name: CHOICES[name][-1] for name in DENSE_OPERATIONS}
    assert [tuned.operation for tuned in found.operations] == list(CHOICES)
    for index, tuned in enumerate(found.operations):
        assert tuned.gain == pytest.approx(2e4 / (6e5 - index * 2e4), abs=0.005)
        times = [trial.step_ns for trial in tuned.ranking]
        assert times == sorted(times, key=lambda time: time or 0)
        assert {trial.tile for trial in tuned.ranking} == set(CHOICES[tuned.operation])


def test_a_tile_is_measured_in_the_step_that_the_earlier_choices_made() -> None:
    timer = Separable(one_best_each())
    found = tune_tiles(START, CHOICES, timer, silent)
    for tiles in timer.measured:
        changed = [name for name in CHOICES if tiles[name] != START[name]]
        # What comes after the last changed operation is still as it was at the start.
        before_last = DENSE_OPERATIONS[: DENSE_OPERATIONS.index(changed[-1])] if changed else ()
        assert all(tiles[name] == found.tiles[name] for name in before_last)


def test_the_start_is_kept_if_nothing_is_faster() -> None:
    slower = {(name, tile): -1.0 for name in DENSE_OPERATIONS for tile in CHOICES[name][1:]}
    found = tune_tiles(START, CHOICES, Separable(slower), silent)
    assert found.tiles == START
    assert all(tuned.gain == 0 and tuned.rival_ns == () for tuned in found.operations)


def test_equal_tiles_are_kept_under_noise() -> None:
    timer = Separable({}, noise=0.01)
    flips = sum(
        tuned.chosen != tuned.before
        for _ in range(100)
        for tuned in tune_tiles(START, CHOICES, timer, silent).operations
    )
    # 1 in 70 by chance: 8.6 of 600 expected, more than 20 once in 3,000 runs.
    assert flips <= 20


def test_a_lucky_first_measurement_does_not_win() -> None:
    class Lucky(Separable):
        def __call__(self, tiles: StepTiles) -> float:
            first = tiles not in self.measured
            return super().__call__(tiles) * (0.5 if first and tiles != START else 1)

    found = tune_tiles(START, CHOICES, Lucky({}), silent)
    assert found.tiles == START


@pytest.mark.parametrize(
    "error",
    [
        OutOfResources(300_000, 232_448, "shared memory"),
        PTXASError("too many registers"),
        ValueError("a tile of one row holds no pair"),
    ],
)
def test_choices_that_raise_are_left_out_and_reported(error: Exception) -> None:
    bad = {CHOICES["down"][1], CHOICES["down"][2]}
    timer = Separable(one_best_each())

    def raising(tiles: StepTiles) -> float:
        if tiles["down"] in bad:
            raise error
        return timer(tiles)

    said: list[str] = []
    found = tune_tiles(START, CHOICES, raising, said.append)
    assert found.tiles["down"] == CHOICES["down"][-1]
    (down,) = (tuned for tuned in found.operations if tuned.operation == "down")
    refused = [trial for trial in down.ranking if trial.step_ns is None]
    assert refused == list(down.ranking[-2:])
    assert {trial.tile for trial in refused} == bad
    assert {trial.refusal for trial in refused} == {str(error)}
    assert any(line.startswith("down:") and "2 not possible" in line for line in said)


def test_the_start_is_kept_if_all_others_raise() -> None:
    def only_start(tiles: StepTiles) -> float:
        if tiles != START:
            raise ValueError("no")
        return 1.0

    assert tune_tiles(START, CHOICES, only_start, silent).tiles == START


def test_an_error_that_is_not_about_a_tile_is_not_hidden() -> None:
    def broken(tiles: StepTiles) -> float:
        if tiles != START:
            raise RuntimeError("an illegal memory access was encountered")
        return 1.0

    with pytest.raises(RuntimeError, match="illegal memory access"):
        tune_tiles(START, CHOICES, broken, silent)


def test_only_operations_with_choices_are_tuned() -> None:
    found = tune_tiles(START, {"o": CHOICES["o"]}, Separable(one_best_each()), silent)
    assert found.tiles == {**START, "o": CHOICES["o"][-1]}
    assert [tuned.operation for tuned in found.operations] == ["o"]


class FakeClock:
    """Each replay of a captured call takes as long as the call says."""

    def capture(self, body: Call) -> Call:
        return body

    def each_ns(self, call: Call, calls: int) -> list[float]:
        call()
        assert calls == tuner.REPLAYS
        return [7.0, 1000.0, 5.0, 6.0, 7.5]


def test_the_time_of_a_step_is_the_median_of_its_replays() -> None:
    launched = []
    assert graph_step_ns(lambda: launched.append(1), FakeClock()) == 7.0
    assert launched == [1]


def test_a_model_is_tuned_over_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    timer = Separable(one_best_each())
    current: list[float] = []

    def launch_with(tiles: StepTiles) -> Callable[[], None]:
        return lambda: current.append(timer(tiles))

    def timed(launch: Callable[[], None], clock: object) -> float:
        launch()
        return current.pop()

    monkeypatch.setattr(tuner, "graph_step_ns", timed)
    said: list[str] = []
    tiles, (first, second) = tune_model(
        launch_with, START, DENSE_OPERATIONS, SHAPES, H200, said.append
    )
    assert tiles == {name: CHOICES[name][-1] for name in DENSE_OPERATIONS}
    number = sum(len(tiles) for tiles in CHOICES.values())
    names = ", ".join(DENSE_OPERATIONS)
    assert said[0] == f"compiling and measuring {number} tiles of {names} on NVIDIA H200"
    assert len(said) == 2 * (1 + len(DENSE_OPERATIONS))
    assert "of the step saved" in said[1]
    assert {tuned.operation: tuned.chosen for tuned in first} == tiles
    assert all(tuned.gain == 0 for tuned in second)


class Passes:
    """A tuner that halves the head's rows in each pass, down to 4."""

    def __init__(self) -> None:
        self.starts: list[StepTiles] = []

    def __call__(self, start: StepTiles, choices: object, *_: object) -> TunedTiles:
        self.starts.append(start)
        head = start["head"]
        halved = replace(head, rows=head.rows // 2 if head.rows > 4 else head.rows)
        return TunedTiles({**start, "head": halved}, ())


@pytest.mark.parametrize(("rows", "passes", "end"), [(4, 1, 4), (8, 2, 4), (32, 2, 8)])
def test_each_pass_starts_from_the_last_until_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, rows: int, passes: int, end: int
) -> None:
    tuned = Passes()
    monkeypatch.setattr(tuner, "tune_tiles", tuned)
    start: StepTiles = {**START, "head": Tile(rows, 64)}
    tiles, results = tune_model(
        lambda _: lambda: None, start, DENSE_OPERATIONS, SHAPES, H200, silent
    )
    assert tiles["head"].rows == end
    assert len(results) == passes
    assert [found["head"].rows for found in tuned.starts] == [rows, rows // 2][:passes]


@pytest.mark.gpu
def test_a_real_step_is_tuned_and_decodes_the_same_tokens() -> None:
    family, workload = "qwen3", DecodeWorkload(1, 16, 24, "fp32")
    model = families.build(family, device="cuda")
    loaded = LoadedModel(model, None, "random", family, 64)
    step = build_fused(VariantSpec.parse("fused"), loaded, workload, "cuda")
    shapes = step_shapes(step.plan.parts, 1, workload.cache_length)
    gpu = this_target_gpu()
    choices = {name: tile_candidates(name, shapes, gpu)[:3] for name in DENSE_OPERATIONS}
    clock = DeviceClock()

    def step_ns(tiles: StepTiles) -> float:
        return graph_step_ns(partial(step.with_tiles(tiles).launch_at, 20), clock)

    found = tune_tiles(step.plan.tiles, choices, step_ns, silent)
    assert found.operations
    for tuned in found.operations:
        assert tuned.chosen in choices[tuned.operation]
        assert all(trial.refusal is None for trial in tuned.ranking)
    prompt = families.prompt_ids(family, 1, 16).cuda()
    assert decoded(step.with_tiles(found.tiles), prompt) == decoded(step, prompt)


def decoded(step: FusedStep, prompt: torch.Tensor) -> list[int]:
    return [int(step.prefill(prompt)), *(int(step.step()) for _ in range(20))]


@pytest.mark.gpu
def test_this_gpu_is_described_as_its_driver_does() -> None:
    gpu, properties = this_target_gpu(), torch.cuda.get_device_properties(0)
    assert gpu.name == properties.name
    assert gpu.multiprocessors == properties.multi_processor_count
    # No GPU of compute capability 8.0 or later gives a program less, or as much as a MiB.
    assert 99 * 1024 <= gpu.shared_bytes < 1024**2
