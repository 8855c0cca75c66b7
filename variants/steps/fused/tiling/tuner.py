"""Finds the tiles of a step by measuring them in place, one operation after the other.

A kernel's time alone says little about its tile, because in a step it overlaps with its neighbours.
So each candidate is measured as part of the whole step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from triton.runtime.errors import OutOfResources, PTXASError

from decodescope.kernels.host.tile import MAX_REGISTERS, Tile
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.compile_ahead import launch_all
from decodescope.variants.steps.fused.tiling.shapes import StepShapes, StepTiles, TiledOperation
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu
from decodescope.variants.steps.fused.tiling.tiles import tile_candidates

# One of two equal tiles that are measured four times each wins every time in 2 of 70 cases.
DUEL_ROUNDS = 4

REPLAYS = 60
# An operation's best tile may depend on its neighbours' tiles. The first pass compiles the kernels,
# so a second costs little.
MAX_PASSES = 2

StepTimer = Callable[[StepTiles], float]
LaunchWith = Callable[[StepTiles], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate in the first round: the time of a step with it, or why it cannot run."""

    tile: Tile
    step_ns: float | None
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class TunedOperation:
    """The result for one operation. `ranking` has the fastest trial first, the refused ones last.

    The tile before and the fastest other one were then measured in turn: `before_ns`, `rival_ns`.
    Both are empty if no other tile was faster in the first round.
    """

    operation: TiledOperation
    before: Tile
    chosen: Tile
    ranking: tuple[Trial, ...]
    before_ns: tuple[float, ...]
    rival_ns: tuple[float, ...]

    @property
    def gain(self) -> float:
        """The share of the step's time that the chosen tile saves; 0 if it is the tile before."""
        if self.chosen == self.before:
            return 0.0
        return 1 - median(self.rival_ns) / median(self.before_ns)


@dataclass(frozen=True, slots=True)
class TunedTiles:
    """The tiles found, and the result for each operation in the order of tuning."""

    tiles: StepTiles
    operations: tuple[TunedOperation, ...]


def tune_tiles(
    start: StepTiles,
    choices: Mapping[TiledOperation, Sequence[Tile]],
    step_ns: StepTimer,
    say: Callable[[str], None],
) -> TunedTiles:
    """Coordinate descent from `start` over the operations that have choices, in their order.

    Each choice is measured once. The fastest and the incumbent are then measured in turn, and the
    fastest replaces the incumbent if each of its times is below all of the incumbent's. Choices
    that a kernel refuses, or that need more than the GPU has, are skipped.

    Raises:
        Whatever `step_ns` raises for `start`, and errors that do not depend on the tile.
    """
    tiles = start
    tuned = []
    for operation in choices:
        result = _tune_operation(operation, tiles, choices[operation], step_ns)
        tiles = {**tiles, operation: result.chosen}
        tuned.append(result)
        say(_summary(result))
    return TunedTiles(tiles, tuple(tuned))


def tune_model(
    launch_with: LaunchWith,
    start: StepTiles,
    operations: Sequence[TiledOperation],
    shapes: StepShapes,
    gpu: TargetGpu,
    say: Callable[[str], None],
) -> tuple[StepTiles, tuple[tuple[TunedOperation, ...], ...]]:
    """Tune some operations of a model's step on this GPU, by replays of graphs of the whole step,
    until a pass changes nothing, at most `MAX_PASSES` times: the tiles, and what each pass found.

    `launch_with(tiles)` returns a call that launches a step with these tiles, always at the same
    position. No other graph may be captured at the same time.

    Raises:
        MissingRequirement: no tile of an operation fits the GPU; names the limit.
    """
    choices = {operation: tile_candidates(operation, shapes, gpu) for operation in operations}
    trials = [(operation, tile) for operation, tiles in choices.items() for tile in tiles]
    clock, tiles, passes = DeviceClock(), start, []
    for _ in range(MAX_PASSES):
        say(f"compiling and measuring {len(trials)} tiles of {', '.join(choices)} on {gpu.name}")
        # The kernels that all steps share come first. A tile refused here is refused again below.
        launch_with(tiles)()
        launch_all(trials, partial(_launch_with_trial, launch_with, tiles))
        tuned = tune_tiles(
            tiles, choices, lambda tried: graph_step_ns(launch_with(tried), clock), say
        )
        passes.append(tuned.operations)
        if tuned.tiles == tiles:
            break
        tiles = tuned.tiles
    return tiles, tuple(passes)


def _launch_with_trial(
    launch_with: LaunchWith, tiles: StepTiles, trial: tuple[TiledOperation, Tile]
) -> None:
    launch_with({**tiles, trial[0]: trial[1]})()


def graph_step_ns(launch: Callable[[], None], clock: DeviceClock) -> float:
    """Nanoseconds of device time of one step: the median of `REPLAYS` replays of its graph."""
    return median(clock.each_ns(clock.capture(launch), REPLAYS))


def _tune_operation(
    operation: TiledOperation, tiles: StepTiles, choices: Sequence[Tile], step_ns: StepTimer
) -> TunedOperation:
    before = tiles[operation]
    trials = [Trial(before, step_ns(tiles))]
    rivals = (tile for tile in dict.fromkeys(choices) if tile != before)
    trials += (_trial({**tiles, operation: tile}, operation, step_ns) for tile in rivals)
    ranking = tuple(sorted(trials, key=lambda trial: (trial.step_ns is None, trial.step_ns)))
    rival = ranking[0].tile
    if rival == before:
        return TunedOperation(operation, before, before, ranking, (), ())
    # In turn, so that clock drift affects both.
    new_tiles = {**tiles, operation: rival}
    old, new = zip(*((step_ns(tiles), step_ns(new_tiles)) for _ in range(DUEL_ROUNDS)), strict=True)
    chosen = rival if max(new) < min(old) else before
    return TunedOperation(operation, before, chosen, ranking, old, new)


def _trial(tiles: StepTiles, operation: TiledOperation, step_ns: StepTimer) -> Trial:
    try:
        return Trial(tiles[operation], step_ns(tiles))
    except (OutOfResources, PTXASError, ValueError) as error:
        return Trial(tiles[operation], None, str(error))


def _summary(result: TunedOperation) -> str:
    refused = sum(trial.step_ns is None for trial in result.ranking)
    left_out = f", {refused} not possible" if refused else ""
    outcome = "kept" if result.chosen == result.before else f"{result.gain:.1%} of the step saved"
    tile = result.chosen
    sizes = f"{tile.rows} x {tile.columns}, {tile.num_warps} warps, {tile.splits} splits"
    if tile.max_registers < MAX_REGISTERS:
        sizes += f", {tile.max_registers} registers"
    return f"{result.operation}: {sizes} ({outcome}; {len(result.ranking)} measured{left_out})"
