"""Decodes with one variant in a process of its own, and lets three steps be traced or counted.

With --trace FOLDER, decodescope captures three steps: the folder gets the trace, and the bytes that
each kernel of a fused variant must move. Without it, CUDA's profiler is on during the steps at the
same positions, for an `ncu` that this process runs under.

After each of these steps come probes: kernels that do nothing, whose duration is what a profiler
adds to any kernel, and one that runs for a known number of the SMs' cycles, which gives their
clock.
"""

import argparse
from functools import partial
from pathlib import Path

import torch

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.io.files import write_json
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.cli.ending import end_with
from decodescope.cli.output import say
from decodescope.kernels.host.operation import KernelOperation
from decodescope.variants.measuring.preparation import Prepared, prepare, require_weights
from decodescope.variants.measuring.window import WindowPlan, capture_info, try_reference
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.decode_step import DecodeStep
from decodescope.variants.steps.fused.fused_step import FusedStep
from decodescope.variants.steps.fused.operations import step_operations

CONTEXT, NEW_TOKENS = 128, 32
WARM_UP_STEPS = 5
WINDOW = WindowPlan(warm=1, lead=1, steps=3)
MIDDLE_STEP = WINDOW.steps // 2
# The position of the middle one of the steps that are traced and counted.
POSITION = CONTEXT + WARM_UP_STEPS + WINDOW.warm + WINDOW.lead + MIDDLE_STEP

PROBE_KERNEL = "spin_kernel"
EMPTY_PROBES = 20
SPIN_CYCLES = 2_000_000
PROBE_CYCLES = (*(0,) * EMPTY_PROBES, SPIN_CYCLES)

TRACE_FILE, CLAIMS_FILE = "trace.json", "claims.json"


def probed_step(step: DecodeStep) -> None:
    """One decode step and the probes after it."""
    step.step()
    for cycles in PROBE_CYCLES:
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]


def trace_steps(prepared: Prepared, step: DecodeStep, folder: Path) -> None:
    """Capture the steps of `WINDOW` as a run does, and write their trace and claims."""
    session = ProfilerSession("cuda")
    session.warm_up()
    subject = prepared.subject(prepared.config.variant, None, session.kernel_floor_ns)
    prompt = prepared.prompt(0)
    reference = try_reference(step, subject, prompt, session, say)
    _warm_up(prepared, step)
    info = capture_info(subject, step, WINDOW, None)
    step.annotate_layers(True)
    session.capture(
        partial(probed_step, step),
        WINDOW.steps,
        folder / TRACE_FILE,
        info,
        WINDOW.warm,
        reference,
        record_shapes=reference is None,
    )
    write_json(folder / CLAIMS_FILE, claimed_bytes(step, POSITION))


def count_step(prepared: Prepared, step: DecodeStep) -> None:
    """Decode up to the first traced step, then as many steps with CUDA's profiler on."""
    _warm_up(prepared, step)
    while step.position < POSITION - MIDDLE_STEP:
        probed_step(step)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    for _ in range(WINDOW.steps):
        probed_step(step)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def claimed_bytes(step: DecodeStep, position: int) -> list[int] | None:
    """The bytes that each kernel of a step at `position` must read and write, in their order.

    None if `step` does not consist of our kernels alone.
    """
    if not isinstance(step, FusedStep):
        return None
    operations = [placed.operation for placed in step_operations(step.plan)]
    kernels = [one for one in operations if isinstance(one, KernelOperation)]
    if len(kernels) < len(operations):
        return None
    return [one.bytes_moved(position) for one in kernels]


def _warm_up(prepared: Prepared, step: DecodeStep) -> None:
    step.prefill(prepared.prompt(0))
    for _ in range(WARM_UP_STEPS):
        step.step()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--variant", required=True)
    parser.add_argument("--trace", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    variant = arguments.variant
    config = WorkerConfig(
        variant=variant,
        batch=1,
        tokens=NEW_TOKENS,
        model=arguments.model,
        context=CONTEXT,
        dtype="bf16",
        device="cuda",
    )
    prepared = require_weights(prepare(config, say), variant, say)
    say(f"building {variant}")
    step = build_variant(variant, prepared.loaded, prepared.workload, "cuda")
    if arguments.trace is not None:
        trace_steps(prepared, step, arguments.trace)
    else:
        count_step(prepared, step)
    return 0


if __name__ == "__main__":
    end_with(main)
