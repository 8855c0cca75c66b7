"""A process that decodes once and keeps a window of its steps as a trace.

`python -m benchmarks.gate.record_trace MODEL VARIANT DEVICE CONTEXT STEPS FILE`. The steps of the
window are decoded before without the profiler, as cuDNN plans its attention at each KV length that
is new to the process.
"""

import sys
from pathlib import Path

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.cli.output import say
from decodescope.variants.measuring.measure import WARM_UP_STEPS
from decodescope.variants.measuring.preparation import prepare, require_weights
from decodescope.variants.measuring.window import WindowPlan, capture_info, capture_window
from decodescope.variants.registry import build_variant


def main(model: str, variant: str, device: str, context: int, steps: int, path: Path) -> None:
    """Write the trace of `steps` steps."""
    plan = WindowPlan(WARM_UP_STEPS, 1, steps)
    config = WorkerConfig(
        variant=variant, batch=1, tokens=plan.total + 1, model=model, context=context, device=device
    )
    prepared = require_weights(prepare(config, say), variant, say)
    step = build_variant(variant, prepared.loaded, prepared.workload, prepared.device)
    session = ProfilerSession(prepared.device)
    session.warm_up()
    step.prefill(prepared.prompt(0))
    for _ in range(plan.total):
        step.step()
    step.reset(context)
    subject = prepared.subject(variant, None, session.kernel_floor_ns)
    info = capture_info(subject, step, plan, None)
    capture_window(step, plan, info, path, session, None, lambda ids: None)


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), Path(sys.argv[6])
    )
