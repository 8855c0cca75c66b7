"""Reports made by hand, for the tests of comparisons."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from decodescope.analyzer.roofline.roofline import captured_cost
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.kernel_report import LaunchReport, StepTimes
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    SCHEMA_VERSION,
    CaptureInfo,
    DeviceReport,
    GapTotal,
    Health,
    MainStepsReport,
    RangeReport,
    Report,
    Source,
)
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.analyzer.schema.step_report import Bandwidth, StepReport
from tests.helpers.answers import answer_of_steps

HEALTHY = Health("ok", 0, ())
ACCURACY = Accuracy("fp32 eager", "a text", 64, 0.004, 1.2e-5, 0.984, 12.34, 1.0007)


def run_of(variant: str, number: int | None, tokens_per_s: float, **changes: Any) -> RunReport:
    """A run of the workload that all runs here share, but for `changes`."""
    step_ns = round(1e9 / tokens_per_s) if tokens_per_s > 0 else 0
    run = RunReport(
        schema_version=SCHEMA_VERSION,
        model="llama-3.2-1b@random",
        weights="random",
        variant=variant,
        device="cuda",
        device_name="NVIDIA H200",
        dtype="bf16",
        batch=1,
        context=128,
        tokens=4,
        prompt_token_ids=[[1, 2, 3]],
        output_token_ids=[[5, 6, 7, 8]],
        output_text=None,
        timed_steps=100,
        tokens_per_s=tokens_per_s,
        prefill_ns=1000,
        step_ns=StepTimes(step_ns, step_ns, step_ns, step_ns),
        launch_calls_per_step=3.0,
        gpu_ops_per_step=300.0,
        gpu_idle_fraction=0.1,
        bytes_per_step=10**9,
        bandwidth=Bandwidth(1e12, None, None, None, None),
        answer=Answer(bound="memory"),
        health=HEALTHY,
        environment={"torch": "2.13.0", "driver": "580.1"},
        accuracy=ACCURACY,
        round=number,
    )
    return msgspec.structs.replace(run, **changes)


def runs_of(rates: Mapping[str, Sequence[float]], **changes: Any) -> list[RunReport]:
    """Interleaved rounds: A B A B."""
    rounds = max(len(values) for values in rates.values())
    return [
        run_of(variant, number, values[number], **changes)
        for number in range(rounds)
        for variant, values in rates.items()
        if number < len(values)
    ]


def step_of(index: int, time_ns: int, gaps: Mapping[str, int], **changes: Any) -> StepReport:
    """A step that spans `time_ns`, idle for as long as its gaps say."""
    idle_ns = sum(gaps.values())
    step = StepReport(
        index=index,
        name="decode_step",
        host_ns=time_ns,
        gpu_span_ns=time_ns,
        busy_ns=time_ns - idle_ns,
        idle_ns=idle_ns,
        launch_calls=3,
        gpu_ops=300,
        gaps=dict(gaps),
        time_ns=time_ns,
        timed=True,
    )
    return msgspec.structs.replace(step, **changes)


def range_of(path: str, gpu_ns: int, idle_ns: int = 0, ops: int = 1, calls: int = 1) -> RangeReport:
    return RangeReport(path, gpu_ns, ops, calls, "exact", idle_ns, attributed_ns=gpu_ns)


def window_of(
    steps: Sequence[StepReport] = (), ranges: Sequence[RangeReport] = (), **changes: Any
) -> Report:
    """A report of one device, whose totals are those of its steps."""
    gaps = {
        name: GapTotal(1, sum(step.gaps.get(name, 0) for step in steps), 0) for name in GAP_CLASSES
    }
    busy_ns = sum(step.busy_ns for step in steps)
    idle_ns = sum(total.total_ns for total in gaps.values())
    ops = sum(step.gpu_ops for step in steps)
    device = DeviceReport(
        0, "NVIDIA H200", ops, ops, busy_ns + idle_ns, busy_ns, idle_ns, 0, gaps, {}, None, False
    )
    calls = sum(step.launch_calls for step in steps)
    report = Report(
        schema_version=SCHEMA_VERSION,
        source=Source("trace.json", "kineto", 10),
        health=HEALTHY,
        devices=(device,),
        launches=LaunchReport(calls, {}, 0, (), None, None, None, None),
        steps=tuple(steps),
        kernels=(),
        ranges=tuple(ranges),
        main_steps=MainStepsReport(
            steps=len(steps),
            busy_ns=busy_ns,
            all_gaps=GapTotal(len(steps), idle_ns, 0),
            gaps=gaps,
            gpu_ops=ops,
            launch_calls=calls,
            kernels_attributed_ns=busy_ns,
            copies_attributed_ns=0,
            graphs_attributed_ns=0,
            outside_ops=0,
            outside_attributed_ns=0,
        ),
        answer=answer_of_steps(steps),
    )
    capture: CaptureInfo | None = changes.get("capture")
    if capture is not None:
        changes = {
            "step_cost": captured_cost(capture),
            "answer": _captured(steps, capture),
        } | changes
    return msgspec.structs.replace(report, **changes)


def _captured(steps: Sequence[StepReport], capture: CaptureInfo) -> Answer:
    """The answer of our own capture: tokens/s rest on the unprofiled step time."""
    unprofiled_ns, batch = capture.unprofiled_step_ns, capture.batch
    answer = answer_of_steps(steps, unprofiled_step_ns=unprofiled_ns, batch=batch)
    timed_ns = unprofiled_ns or answer.step_ns
    rate = batch * 1e9 / timed_ns if timed_ns else None
    return msgspec.structs.replace(answer, tokens_per_s=rate)


def capture_of(unprofiled_step_ns: int | None, **changes: Any) -> CaptureInfo:
    capture = CaptureInfo(
        device="cuda",
        device_name="NVIDIA H200",
        model="llama-3.2-1b@random",
        weights="random",
        variant="eager",
        dtype="bf16",
        batch=1,
        context=128,
        position=140,
        steps=3,
        bytes_per_step=10**9,
        unprofiled_step_ns=unprofiled_step_ns,
        decodescope_version="0.1.0",
    )
    return msgspec.structs.replace(capture, **changes)
