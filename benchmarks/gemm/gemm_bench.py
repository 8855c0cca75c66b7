"""`gemm`: the split-K GEMM of FP8 and INT8 weights beside others, from cold memory.

All are measured in the same rounds on the same matrices, each in a CUDA graph, after their results
were compared with float64. A graph cycles through copies of W that together exceed the L2 cache.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import torch

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
from benchmarks.kernels.kernel_bench import (
    copies_needed,
    failure,
    launch_times,
    launches_per_replay,
)
from benchmarks.kernels.report import SCHEMA_VERSION
from decodescope.analyzer.io.files import write_atomically
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.machine.cache_folder import cache_folder
from decodescope.variants.machine.clock import Call, DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.steps.fused.tiling.tile_limits import TargetGpu, this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import (
    TileEntry,
    encode_table,
    keep_tiles,
    table_with,
)
from decodescope.variants.tuning.report import RoundSpread
from decodescope.variants.tuning.tile_tuning import read_table

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


def run_gemm_bench(
    rows: int, columns: int, tokens: Sequence[int], table: Path | None, say: Say
) -> GemmBenchmark:
    """Tune, check and time the GEMMs for W [rows, columns] and each number of tokens.

    The tiles found for ours are kept for later runs, and added to `table`, a file in the format of
    the shipped one, if given. Needs what `require_gpu` checks.

    Raises:
        MissingRequirement: out of GPU memory, or no tile fits the GPU.
        InputError: `table` is not a table or cannot be written.
    """
    known = None if table is None else read_table(table)
    l2_bytes, peak = torch.cuda.get_device_properties(0).L2_cache_size, read_peak("cuda")
    copies, _ = copies_needed(rows * columns, l2_bytes)
    pdl = can_overlap(torch.device("cuda"))
    conditions = GemmConditions(this_target_gpu(), cache_folder(), peak, pdl)
    with memory_errors("measuring GEMMs", "cuda"), torch.no_grad():
        say(f"drawing {copies} matrices of {rows} x {columns}")
        operands = GemmOperands(rows, columns, max(tokens), copies, "cuda")
        sizes = tuple(measure_size(operands, one, conditions, DeviceClock(), say) for one in tokens)
    entries = [entry for size in sizes for entry in found_tiles(operands, size)]
    if table is not None and known is not None:
        write_atomically(table, encode_table(table_with(known, conditions.gpu.name, entries)))
        say(f"written to the table {table}")
    kept_in = keep_tiles(conditions.gpu, entries, cache_folder())
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
    checked = {name: _checked(name, build, clock) for name, build in builders.items()}
    running = {name: one for name, one in checked.items() if isinstance(one, _Running)}
    rounds: dict[str, list[float]] = {name: [] for name in running}
    for _ in range(ROUNDS):
        for name, one in running.items():
            replay_ns = median(clock.each_ns(one.replay, REPLAYS))
            rounds[name].append(replay_ns / one.launches)
    spreads = {name: RoundSpread.of(times) for name, times in rounds.items()}
    return tuple(
        _figures(one, name, spreads, peak) if isinstance(one, _Running) else one
        for name, one in checked.items()
    )


def found_tiles(operands: GemmOperands, size: GemmSize) -> Iterator[TileEntry]:
    """The fastest tile of each split-K GEMM whose result was right."""
    for gemm in size.gemms:
        if gemm.name in SPLIT_KINDS and gemm.error is None and gemm.candidate is not None:
            work = work_of(operands, size.tokens, SPLIT_KINDS[gemm.name])
            yield TileEntry(work.key, gemm.candidate.tile)


@dataclass(frozen=True, slots=True)
class _Running:
    """A GEMM that passed its check; `replay` replays `launches` launches."""

    contender: Contender
    error: float
    replay: Call
    launches: int


def _checked(
    name: str, build: Callable[[], Contender], clock: DeviceClock
) -> _Running | GemmFigures:
    try:
        contender = build()
        error = contender.error()
        if not error <= contender.tolerance:
            return _wrong(contender, error)
        launches = launches_per_replay(len(contender.launches))
        return _Running(
            contender, error, clock.capture(partial(_run, contender, launches)), launches
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # torch refuses shapes with errors of many types
        if name not in PEERS:
            raise
        return GemmFigures(name, error=f"not available: {str(problem).partition(chr(10))[0]}")


def _run(contender: Contender, launches: int) -> None:
    for index, launch in enumerate(islice(cycle(contender.launches), launches)):
        # The first launch could only overlap with the previous replay.
        launch(contender.overlaps and index > 0)


def _wrong(contender: Contender, error: float) -> GemmFigures:
    return GemmFigures(
        contender.name,
        error=failure(error, contender.tolerance),
        note=contender.note,
        candidate=contender.candidate,
        bytes_moved=contender.bytes_moved,
        relative_error=error if error < float("inf") else None,
        tolerance=contender.tolerance,
    )


def _figures(
    one: _Running, name: str, spreads: Mapping[str, RoundSpread], peak: ReadPeak | None
) -> GemmFigures:
    contender, spread = one.contender, spreads[name]
    return GemmFigures(
        name,
        note=contender.note,
        candidate=contender.candidate,
        bytes_moved=contender.bytes_moved,
        relative_error=one.error,
        tolerance=contender.tolerance,
        times=launch_times(spread.rounds, contender.bytes_moved, peak),
        rounds_ns=spread.rounds,
        speedups={
            peer: spreads[peer].over(spread) for peer in PEERS if peer in spreads and peer != name
        },
    )
