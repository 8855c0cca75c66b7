"""`gemm`: the split-K GEMM of FP8 and INT8 weights beside others, from cold memory.

All are measured in the same rounds on the same matrices, each in a CUDA graph, after their results
were compared with float64. A graph cycles through copies of W that together exceed the L2 cache.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from msgspec.structs import replace

from benchmarks.gemm.gemm_contenders import (
    SPLIT_KINDS,
    TORCH_PEERS,
    Contender,
    overlapped,
    tuned_gemms,
    work_of,
)
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.gemm.gemm_report import PEERS, GemmBenchmark, GemmFigures, GemmSize
from benchmarks.gemm.gemm_tuner import ranked
from benchmarks.harness.cold_graphs import cold_timer, copies_needed, launches_per_replay
from benchmarks.harness.turns import Check, Contestant, Outcome, Timer, take_turns
from benchmarks.kernels.kernel_bench import launch_times
from benchmarks.kernels.report import SCHEMA_VERSION
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.tile import Tile
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu, this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import TileKey, keep_tiles
from decodescope.variants.tuning.report import RoundSpread

_DEVICE = "device"
ROUNDS = 15
REPLAYS = 3
TOKENS = (1, 2, 4, 8, 16, 32, 64)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class GemmConditions:
    """How GEMMs are measured: the GPU that tiles are for, the folder that keeps tiles, the read
    peak to compare with, and whether launches may overlap (PDL)."""

    gpu: TargetGpu
    folder: Path | None
    peak: ReadPeak | None
    pdl: bool


def run_gemm_bench(rows: int, columns: int, tokens: Sequence[int], say: Say) -> GemmBenchmark:
    """Tune, check and time the GEMMs for W [rows, columns] and each number of tokens.

    The tiles found for ours are kept for later runs. Needs what `require_gpu` checks.

    Raises:
        MissingRequirement: out of GPU memory, or no tile fits the GPU.
    """
    l2_bytes, peak = torch.cuda.get_device_properties(0).L2_cache_size, read_peak()
    copies, _ = copies_needed(rows * columns, l2_bytes)
    pdl = can_overlap(torch.device("cuda"))
    conditions = GemmConditions(this_target_gpu(), cache_folder(), peak, pdl)
    with memory_errors("measuring GEMMs", "cuda"), torch.no_grad():
        say(f"drawing {copies} matrices of {rows} x {columns}")
        operands = GemmOperands(rows, columns, max(tokens), copies, "cuda")
        sizes = tuple(measure_size(operands, one, conditions, DeviceClock(), say) for one in tokens)
    tiles = {key: tile for size in sizes for key, tile in found_tiles(operands, size)}
    kept_in = keep_tiles(conditions.gpu, tiles, cache_folder())
    if kept_in is not None:
        say(f"kept for later runs in {kept_in}")
    return GemmBenchmark(
        schema_version=SCHEMA_VERSION,
        rows=rows,
        columns=columns,
        copies=copies,
        launches=launches_per_replay(copies),
        rounds=ROUNDS,
        replays=REPLAYS,
        l2_bytes=l2_bytes,
        measured_peak_bytes_per_s=None if peak is None else peak.bytes_per_s,
        measured_peak_at=None if peak is None else peak.measured_at,
        sizes=sizes,
        environment=environment(),
    )


def measure_size(
    operands: GemmOperands, tokens: int, conditions: GemmConditions, clock: DeviceClock, say: Say
) -> GemmSize:
    """Find tiles for this number of tokens, then check and time all GEMMs."""
    say(f"{tokens} tokens: finding tiles")
    builders = {name: partial(build, operands, tokens) for name, build in TORCH_PEERS.items()}
    trials = {}
    for tuned in tuned_gemms(operands, tokens, conditions.gpu, conditions.folder):
        trials[tuned.name] = ranked(tuned.candidates, tuned.operations, clock)
        best = trials[tuned.name][0].candidate
        builders[tuned.name] = partial(tuned.contender, best)
        if tuned.overlaps and conditions.pdl:
            builders[overlapped(tuned.name)] = partial(tuned.contender, best, True)
    say(f"{tokens} tokens: measuring {len(builders)} GEMMs")
    return GemmSize(tokens, measure_gemms(builders, conditions.peak, clock), trials)


def measure_gemms(
    builders: Mapping[str, Callable[[], Contender]], peak: ReadPeak | None, clock: DeviceClock
) -> tuple[GemmFigures, ...]:
    """Build and check each GEMM; time those that passed, each round all of them in turn."""
    built: dict[str, Contender] = {}

    def contestant(name: str, build: Callable[[], Contender]) -> Contestant:
        def check() -> Check:
            contender = build()
            checked = Check.against_float64(contender.error(), contender.tolerance)
            built[name] = contender
            return checked

        def timers() -> dict[str, Timer]:
            return {_DEVICE: _timer(built[name], clock)}

        return Contestant(name, check, timers, ours=name not in PEERS)

    outcomes = take_turns([contestant(name, build) for name, build in builders.items()], ROUNDS)
    timed = {name: outcome.spread(_DEVICE) for name, outcome in outcomes.items()}
    spreads = {name: spread for name, spread in timed.items() if spread is not None}
    return tuple(
        _figures(name, outcome, built.get(name), spreads, peak)
        for name, outcome in outcomes.items()
    )


def found_tiles(operands: GemmOperands, size: GemmSize) -> Iterator[tuple[TileKey, Tile]]:
    """The fastest tile of each split-K GEMM whose result was right."""
    for gemm in size.gemms:
        if gemm.name in SPLIT_KINDS and gemm.error is None and gemm.candidate is not None:
            work = work_of(operands, size.tokens, SPLIT_KINDS[gemm.name])
            yield work.key, gemm.candidate.tile


def _timer(contender: Contender, clock: DeviceClock) -> Timer:
    calls = [partial(launch, contender.overlaps) for launch in contender.launches]
    first = partial(contender.launches[0], False)
    return cold_timer(clock, calls, launches_per_replay(len(calls)), REPLAYS, first)


def _figures(
    name: str,
    outcome: Outcome,
    contender: Contender | None,
    spreads: Mapping[str, RoundSpread],
    peak: ReadPeak | None,
) -> GemmFigures:
    if contender is None:
        return GemmFigures(name, error=outcome.check.failure)
    figures = GemmFigures(
        name,
        error=outcome.check.failure,
        note=contender.note,
        candidate=contender.candidate,
        bytes_moved=contender.bytes_moved,
        relative_error=outcome.relative_error,
        tolerance=contender.tolerance,
    )
    if name not in spreads:
        return figures
    spread = spreads[name]
    return replace(
        figures,
        times=launch_times(spread.rounds, contender.bytes_moved, peak),
        rounds_ns=spread.rounds,
        speedups={
            peer: spreads[peer].over(spread) for peer in PEERS if peer in spreads and peer != name
        },
    )
