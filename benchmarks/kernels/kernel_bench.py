"""`kernels`: each kernel of a fused step alone, from cold memory, checked before it is timed.

In a decode step each kernel reads its weights from DRAM, because the other kernels evict them from
the L2 cache. Repeated on one set of weights it would read them from L2 and look faster than it is.
So a graph of launches cycles through copies that together exceed the L2 several times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import quantiles

import torch
from msgspec.structs import asdict

from benchmarks.kernels.kernel_cases import Copy, KernelCase, kernel_cases
from benchmarks.kernels.operands import Operands
from benchmarks.kernels.report import SCHEMA_VERSION, KernelBenchmark, KernelFigures, LaunchTimes
from benchmarks.kernels.shape_model import shape_model
from decodescope.kernels.device.overlap import can_overlap
from decodescope.variants.machine.clock import DeviceClock
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.model.loading import torch_dtype
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.shapes import step_shapes
from decodescope.variants.steps.fused.tiling.tile_choice import tiles_for
from decodescope.variants.steps.fused.tiling.tile_limits import this_target_gpu

COLD_L2_MULTIPLE = 4
MAX_COPIES = 1024
# A replay must last much longer than the host takes to launch it.
MIN_LAUNCHES = 128
REPLAYS = 30

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
        peak=read_peak("cuda"),
        tolerance=TOLERANCES[workload.dtype],
        pdl=can_overlap(torch.device("cuda")),
    )
    shapes = step_shapes(parts, workload.batch, workload.context + 1, spec.kv_bytes, spec.fp8_x)
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
        replays=REPLAYS,
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
    """Check one kernel with and without PDL, and time it if it passed."""
    count, cold = copies_needed(case.use.bytes_moved, conditions.l2_bytes)
    copies = case.copies(count)
    ways = (False, True) if conditions.pdl else (False,)
    error = max(copies[0].relative_error(pdl) for pdl in ways)
    passed = error <= conditions.tolerance
    times = [_launch_times(case, copies, pdl, conditions, clock) for pdl in ways if passed]
    return KernelFigures(
        **asdict(case.use),
        copies=count,
        launches=launches_per_replay(count),
        cold=cold,
        relative_error=error if error < float("inf") else None,
        tolerance=conditions.tolerance,
        error=None if passed else failure(error, conditions.tolerance),
        serial=times[0] if times else None,
        overlapped=times[1] if len(times) > 1 else None,
    )


def copies_needed(bytes_moved: int, l2_bytes: int) -> tuple[int, bool]:
    """The number of operand sets, and whether they exceed the L2 `COLD_L2_MULTIPLE` times. A kernel
    that would need more than `MAX_COPIES` gets one set for each of its `MIN_LAUNCHES` launches."""
    count = COLD_L2_MULTIPLE * l2_bytes // bytes_moved + 1
    return (count, True) if count <= MAX_COPIES else (MIN_LAUNCHES, False)


def launches_per_replay(copies: int) -> int:
    """Launches of whole cycles through the copies, at least `MIN_LAUNCHES`."""
    return -(-MIN_LAUNCHES // copies) * copies


def _launch_times(
    case: KernelCase, copies: Sequence[Copy], pdl: bool, conditions: Conditions, clock: DeviceClock
) -> LaunchTimes:
    launches = launches_per_replay(len(copies))

    def body() -> None:
        for index in range(launches):
            # The first launch could only overlap with the previous replay.
            copies[index % len(copies)].launch(pdl and index > 0)

    replays_ns = clock.each_ns(clock.capture(body), REPLAYS)
    launch_ns = [ns / launches for ns in replays_ns]
    return launch_times(launch_ns, case.use.bytes_moved, conditions.peak)


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


def failure(error: float, tolerance: float) -> str:
    """Why a kernel with this relative error gets no time."""
    found = f"relative error {error:.2g}" if error < float("inf") else "missing or wrong results"
    return f"{found} against the float64 reference (allowed: {tolerance:.2g}): not timed"
