"""`kernels`: each kernel of a fused step alone, from cold memory, checked before it is timed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import quantiles

import torch
from msgspec.structs import asdict

from benchmarks.harness.cold_graphs import cold_timer, copies_needed, launches_per_replay
from benchmarks.harness.turns import Check, Contestant, Timer, take_turns
from benchmarks.kernels.kernel_cases import KernelCase, kernel_cases
from benchmarks.kernels.operands import Operands
from benchmarks.kernels.report import SCHEMA_VERSION, KernelBenchmark, KernelFigures, LaunchTimes
from benchmarks.kernels.shape_model import shape_model
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.model.skeleton import torch_dtype
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.target_gpu import this_target_gpu
from decodescope.variants.steps.fused.tiling.tile_table import tiles_for

ROUNDS, REPLAYS = 6, 5

# Largest allowed relative error against float64 on the same inputs. It covers the rounding of the
# result and, in fp32, of sums of many thousand products.
TOLERANCES: dict[DType, float] = {"fp32": 1e-5, "fp16": 1e-3, "bf16": 8e-3}


@dataclass(frozen=True, slots=True)
class Conditions:
    """How kernels are measured: the size of the L2 cache, the read peak to compare with, the
    largest allowed error, and whether launches may overlap (PDL)."""

    l2_bytes: int
    peak: ReadPeak | None
    tolerance: float
    pdl: bool


def run_kernel_bench(
    model: str, workload: DecodeWorkload, spec: VariantSpec, say: Callable[[str], None]
) -> KernelBenchmark:
    """Check and time the kernels of `model`'s decode step after `workload.context` tokens, with
    weights, K and V stored as `spec` says.

    No weights are loaded: they are random numbers of the model's shapes. Needs what `require_gpu`
    checks.

    Raises:
        MissingRequirement: model not found, out of GPU memory.
        ModelError: a model that the fused kernels cannot run.
        InputError: a batch that they cannot run.
    """
    dtype = torch_dtype(workload.dtype)
    parts = shape_model(resolve_model(model), workload.batch, dtype, "cuda", spec)
    gpu = torch.cuda.get_device_properties(0)
    conditions = Conditions(
        l2_bytes=gpu.L2_cache_size,
        peak=read_peak(),
        tolerance=TOLERANCES[workload.dtype],
        pdl=can_overlap(torch.device("cuda")),
    )
    shapes = step_shapes(parts, workload.batch, workload.context + 1, spec)
    chosen = tiles_for(shapes, this_target_gpu())
    with memory_errors("measuring kernels", "cuda"):
        operands = Operands(parts, workload.batch, workload.context, chosen.tiles, "cuda", spec)
        figures = measure_kernels(operands, conditions, DeviceClock(), say)
    peak = conditions.peak
    return KernelBenchmark(
        schema_version=SCHEMA_VERSION,
        model=model,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        replays=ROUNDS * REPLAYS,
        l2_bytes=conditions.l2_bytes,
        measured_peak_bytes_per_s=None if peak is None else peak.bytes_per_s,
        measured_peak_at=None if peak is None else peak.measured_at,
        tile_sources=dict(chosen.sources),
        kernels=figures,
        environment=environment(),
        variant=str(spec),
    )


def measure_kernels(
    operands: Operands, conditions: Conditions, clock: DeviceClock, say: Callable[[str], None]
) -> tuple[KernelFigures, ...]:
    """Measure every kernel in turn; only one kernel's copies are in memory at a time."""
    figures = []
    for case in kernel_cases(operands):
        say(f"{case.use.operation}: {case.use.kernel}")
        figures.append(measure_case(case, conditions, clock))
    return tuple(figures)


def measure_case(case: KernelCase, conditions: Conditions, clock: DeviceClock) -> KernelFigures:
    """Check one kernel with and without PDL, and time both ways in turn if both passed."""
    count, cold = copies_needed(case.use.bytes_moved, conditions.l2_bytes)
    launches = launches_per_replay(count)
    copies = case.copies(count)
    ways = {"serial": False, "overlapped": True} if conditions.pdl else {"serial": False}

    def check() -> Check:
        error = max(copies[0].relative_error(pdl) for pdl in ways.values())
        return Check.against_float64(error, conditions.tolerance)

    def timer(pdl: bool) -> Timer:
        calls = [partial(copy.launch, pdl) for copy in copies]
        return cold_timer(clock, calls, launches, REPLAYS, partial(copies[0].launch, False))

    contestant = Contestant(
        case.use.kernel, check, lambda: {way: timer(pdl) for way, pdl in ways.items()}
    )
    outcome = take_turns([contestant], ROUNDS)[case.use.kernel]

    def times(way: str) -> LaunchTimes | None:
        if not (launch_ns := outcome.readings(way)):
            return None
        return launch_times(launch_ns, case.use.bytes_moved, conditions.peak)

    return KernelFigures(
        **asdict(case.use),
        copies=count,
        launches=launches,
        cold=cold,
        relative_error=outcome.relative_error,
        tolerance=conditions.tolerance,
        error=outcome.check.failure,
        serial=times("serial"),
        overlapped=times("overlapped"),
    )


def launch_times(
    launch_ns: Sequence[float], bytes_moved: int, peak: ReadPeak | None
) -> LaunchTimes:
    """The percentiles of a launch's times, and the rate of its bytes."""
    tenths = quantiles(launch_ns, n=10, method="inclusive")
    bytes_per_s = bytes_moved / (tenths[4] * 1e-9)
    return LaunchTimes(
        p10_ns=tenths[0],
        median_ns=tenths[4],
        p90_ns=tenths[8],
        bytes_per_s=bytes_per_s,
        share_of_peak=None if peak is None else bytes_per_s / peak.bytes_per_s,
    )
