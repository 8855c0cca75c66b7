"""The claim `tk-gemm`: a split-K FP8 GEMM beside a plain one and cuBLAS, by tokens, from cold
memory, and what its launches cost the host."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.racing import Entrant, Racing, Work, entrant_of
from benchmarks.claims.report import Race, Row
from benchmarks.claims.rows import speed_up
from benchmarks.claims.tk_gemm.first_launch import LaunchCosts, launch_costs
from benchmarks.claims.tk_gemm.source import SOURCE
from benchmarks.gemm import split_k_gemm
from benchmarks.gemm.gemm_bench import TOKENS
from benchmarks.gemm.gemm_contenders import (
    SPLIT_KINDS,
    TORCH_PEERS,
    Contender,
    Tuned,
    cublas,
    tuned_gemms,
    work_of,
)
from benchmarks.gemm.gemm_operands import GemmOperands
from benchmarks.gemm.gemm_tiles import Candidate, measured_tile
from benchmarks.gemm.gemm_tuner import ranked
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.text.formatting import bytes_size, duration, significant
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu, this_target_gpu
from decodescope.variants.tuning.report import RoundSpread

SIZE = 8192

OURS, _PLAIN, _CUBLAS_FP8, _CUBLAS_FP16 = (
    "split_k_gemm",
    "plain_gemm",
    "scaled_mm_tensorwise",
    "cublas_fp16",
)
_SPEED_UPS = (
    (_PLAIN, "a plain Triton GEMM", 1.94),
    (_CUBLAS_FP8, "cuBLAS FP8", 1.87),
    (_CUBLAS_FP16, "cuBLAS FP16", 1.71),
)
_RATE_TOKENS, _RATE, _RATE_PEAK = 16, 1.65e12, 3.35e12
_FIRST_LAUNCH_NS = 2.413e6

_NOTES = (
    "Theirs are durations of Nsight Compute, of one kernel with cold caches, and the best of M = 1 "
    "to 64; here a call in a CUDA graph whose weights come from memory.",
    "Theirs adds its splits to a float16 output by atomic additions, which another launch has to "
    "fill with zeros; here the splits are added in a fixed order in the same launch.",
    "The source finds cuBLAS FP8 ahead of its kernel from M = 32 on.",
    "Its launch of 2.413 ms is the host's side in torch.profiler, put down to compilation.",
)


def measure_products(setup: Setup) -> Measured:
    """All rows on the current GPU."""
    copies = setup.racing.copies(Work(SIZE * SIZE))
    setup.say(f"drawing {copies} matrices of {SIZE} x {SIZE}")
    operands = GemmOperands(SIZE, SIZE, max(TOKENS), copies, "cuda")
    gpu = this_target_gpu()
    races = {}
    for tokens in TOKENS:
        setup.say(f"{tokens} tokens")
        races[tokens] = race_products(setup.racing, operands, tokens, gpu)
    costs = _launch_costs(setup, operands, gpu)
    peak = setup.racing.peak_bytes_per_s
    rows = (*speed_ups(races), *memory_rate(races, peak), *launch_rows(costs))
    return Measured(rows, tuple(races.values()), _NOTES)


def race_products(racing: Racing, operands: GemmOperands, tokens: int, gpu: TargetGpu) -> Race:
    """Ours with the tile that was measured before, or else the fastest of the rule's, beside the
    fastest plain one and torch's."""
    folder = cache_folder()
    tuned = {one.name: one for one in tuned_gemms(operands, tokens, gpu, folder)}
    known = measured_tile(work_of(operands, tokens, SPLIT_KINDS["w8a8"]), gpu, folder)
    ours, plain = tuned["w8a8"], tuned["plain_triton"]
    candidate = _fastest(ours, racing) if known is None else Candidate(known)
    operations = ours.operations(candidate)
    multiplications = tokens * operands.rows * operands.columns
    work = Work(operations[0].bytes_moved(0), 2 * multiplications, "fp8")
    entrants = [
        _entrant(ours, candidate, operations),
        # Written here, but the baseline: what the split-K kernel improves on.
        replace(
            _entrant(plain, (best := _fastest(plain, racing)), plain.operations(best)), ours=False
        ),
        _peer(TORCH_PEERS[_CUBLAS_FP8](operands, tokens), "cuBLAS, FP8, a scale for each tensor"),
        _peer(TORCH_PEERS["scaled_mm_rowwise"](operands, tokens), "FP8, a scale for each row"),
        _peer(cublas(torch.float16, operands, tokens), "cuBLAS, float16"),
    ]
    size = f"M = {tokens}, N = {operands.rows}, K = {operands.columns}"
    return racing.race(size, work, entrants)


def speed_ups(races: Mapping[int, Race]) -> Iterator[Row]:
    """For each baseline the best speed-up beside the published one, then those by tokens."""
    for baseline, words, published in _SPEED_UPS:
        by_tokens = {
            tokens: speed_up(f"over {words}, M = {tokens}", race, baseline, OURS, None)
            for tokens, race in races.items()
        }
        best = max(by_tokens, key=lambda tokens: _median(by_tokens[tokens]))
        what = f"over {words}, up to (here M = {best})"
        yield speed_up(what, races[best], baseline, OURS, published)
        yield from by_tokens.values()


def launch_rows(costs: LaunchCosts) -> Iterator[Row]:
    """The published launch overhead beside a first launch that compiles, one that finds the kernel
    compiled, and later ones."""
    later = f"a later launch takes {duration(costs.later_ns.median)}"
    for what, spread, published, why in (
        ("first launch, compiling", costs.compiling_ns, _FIRST_LAUNCH_NS, f"compiles; {later}"),
        (
            "first launch, compiled before",
            costs.loading_ns,
            _FIRST_LAUNCH_NS,
            f"loads the kernel from disk; {later}",
        ),
        ("later launch", costs.later_ns, None, "Triton looks at each argument"),
        (
            "kept launch, called again",
            costs.kept_ns,
            None,
            f"without that: {significant(costs.later_ns.median / costs.kept_ns.median)} x as fast",
        ),
    ):
        yield Row(
            what,
            "ns",
            published,
            spread,
            higher_is_better=False,
            explanation=why,
            baseline=published is not None,
        )


def memory_rate(races: Mapping[int, Race], peak: float | None) -> Iterator[Row]:
    """The rate of the weights beside the published rate of DRAM."""
    what = f"memory read, M = {_RATE_TOKENS}"
    one = races[_RATE_TOKENS].entrant(OURS)
    if one.device_ns is None or one.bytes_moved is None:
        yield Row(what, "bytes_per_s", _RATE, error=one.error)
        return
    yield Row(
        what,
        "bytes_per_s",
        _RATE,
        RoundSpread.of([one.bytes_moved / ns * 1e9 for ns in one.device_ns.rounds]),
        peak,
        _RATE / _RATE_PEAK,
        one.share_of_bound,
        explanation=f"{bytes_size(one.bytes_moved)} in {duration(one.device_ns.median)}; their "
        f"share is of {bytes_size(_RATE_PEAK)}/s, the datasheet's",
    )


def _launch_costs(setup: Setup, operands: GemmOperands, gpu: TargetGpu) -> LaunchCosts:
    setup.say("first launches")
    (ours,) = (one for one in tuned_gemms(operands, 1, gpu, cache_folder()) if one.name == "w8a8")
    first = ours.operations(ours.candidates[0])[0]
    kernel = split_k_gemm._split_k_gemm_kernel
    return launch_costs(first.launch, kernel.device_caches.clear, torch.cuda.synchronize)


def _fastest(tuned: Tuned, racing: Racing) -> Candidate:
    return ranked(tuned.candidates, tuned.operations, racing.clock)[0].candidate


def _entrant(tuned: Tuned, candidate: Candidate, operations: Sequence[KernelOperation]) -> Entrant:
    tile = candidate.tile
    what = f"FP8, {tile.rows} x {tile.columns}, splits {tile.splits}, stages {tile.num_stages}"
    return entrant_of(operations, what, tuned.tolerance)


def _peer(contender: Contender, what: str) -> Entrant:
    return Entrant(
        name=contender.name,
        what=what,
        calls=[partial(launch, False) for launch in contender.launches],
        result=lambda: (contender.result(),),
        reference=lambda: (contender.reference(),),
        tolerance=contender.tolerance,
        traffic_bytes=contender.bytes_moved,
        note=contender.note,
    )


def _median(row: Row) -> float:
    return 0.0 if row.measured is None else row.measured.median


TK_GEMM = Claim(
    "tk-gemm",
    "1.94 x base Triton, 1.87 x cuBLAS FP8, 1.71 x cuBLAS FP16, N = K = 8192; launch 2.4 ms",
    SOURCE,
    measure_products,
)
