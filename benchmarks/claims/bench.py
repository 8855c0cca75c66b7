"""`claims`: measures claims one after the other on the current GPU."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.racing import Racing
from benchmarks.claims.report import SCHEMA_VERSION, ClaimResult, ClaimsReport, Source
from benchmarks.claims.watching import ClockWatch
from benchmarks.harness.launch_clock import LaunchClock
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.machine.meters import open_meters
from decodescope.analyzer.roofline.peaks import datasheet_peak
from decodescope.variants.machine.environment import environment, gpu_uuid
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import read_peak

ROUNDS = 9


def run_claims(
    claims: Sequence[Claim], gpt_fast: Path | None, say: Callable[[str], None]
) -> ClaimsReport:
    """Measure the claims in turn. Needs what `require_gpu` checks.

    Raises:
        KeyboardInterrupt: before a claim was complete.
    """
    uuid = gpu_uuid()
    watch = ClockWatch(None if uuid is None else open_meters(uuid))
    gpu = torch.cuda.get_device_properties(0)
    peak, datasheet = read_peak(), datasheet_peak(gpu.name)
    racing = Racing(
        LaunchClock(),
        gpu.L2_cache_size,
        None if peak is None else peak.bytes_per_s,
        {} if datasheet is None else dict(datasheet.flops_per_s),
        ROUNDS,
        watch.look,
    )
    datasheet_bytes_per_s = None if datasheet is None else datasheet.bytes_per_s
    setup = Setup(racing, say, gpt_fast, datasheet_bytes_per_s)
    results = measure_claims(claims, setup, watch, gpu.name)
    return ClaimsReport(
        schema_version=SCHEMA_VERSION,
        measured_peak_bytes_per_s=racing.peak_bytes_per_s,
        measured_peak_at=None if peak is None else peak.measured_at,
        datasheet_peak_bytes_per_s=datasheet_bytes_per_s,
        launch_floor_ns=racing.launch_floor_ns,
        l2_bytes=gpu.L2_cache_size,
        rounds=ROUNDS,
        claims=results,
        environment=environment(),
    )


def measure_claims(
    claims: Sequence[Claim], setup: Setup, watch: ClockWatch, gpu_name: str
) -> tuple[ClaimResult, ...]:
    """Measure the claims in turn; one that fails has an error and does not end the others.

    Ctrl-C ends the measurement: the claims that are complete are kept, the others have that as
    their error.

    Raises:
        KeyboardInterrupt: before a claim was complete.
    """
    results: list[ClaimResult] = []
    try:
        for claim in claims:
            results.append(measure_claim(claim, setup, watch, gpu_name))
    except KeyboardInterrupt:
        if not results:
            raise
        results += [_interrupted(claim, gpu_name) for claim in claims[len(results) :]]
    return tuple(results)


def measure_claim(claim: Claim, setup: Setup, watch: ClockWatch, gpu_name: str) -> ClaimResult:
    """Measure one claim, with what the GPU's clock did meanwhile."""
    setup.say(f"{claim.name}: {claim.title}")
    begun_s, error, measured = monotonic(), None, Measured(())
    try:
        with memory_errors(f"measuring {claim.name}", "cuda"), torch.no_grad():
            measured = claim.measure(setup)
    except DecodescopeError as problem:
        error = str(problem)
    # What one claim's operands took is not free for the next until torch gives it back.
    torch.cuda.empty_cache()
    return ClaimResult(
        claim.name,
        claim.title,
        claim.source,
        comparable_with(claim.source, gpu_name),
        measured.rows,
        measured.races,
        measured.notes,
        watch.seen(),
        monotonic() - begun_s,
        error,
    )


def _interrupted(claim: Claim, gpu_name: str) -> ClaimResult:
    comparable = comparable_with(claim.source, gpu_name)
    return ClaimResult(claim.name, claim.title, claim.source, comparable, (), error="interrupted")


def comparable_with(source: Source, gpu_name: str) -> str:
    """What can be compared with the source's figures on a GPU of this name."""
    if not source.gpu:
        return "the source names no GPU: only ratios compare"
    if (gpu := source.gpu_like(gpu_name)) is not None:
        return f"measured on {gpu} as well: every figure compares"
    return (
        f"published for {source.gpu}: times, rates and tokens/s do not compare with those of "
        f"{gpu_name}; ratios do as far as the limits of both GPUs allow"
    )
