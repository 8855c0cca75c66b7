"""Reports, steps and comparisons for the tests of the HTML page; all of it made up."""

from typing import Any

import msgspec

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.comparing.diff import diff_answer
from decodescope.analyzer.html.report_page import VariantView
from decodescope.analyzer.schema.comparison_report import (
    Change,
    Comparison,
    ComparisonResult,
    Diff,
    Pair,
    RangeChange,
    SpeedRatio,
    Standing,
    VariantRates,
)
from decodescope.analyzer.schema.kernel_report import Roofline, StepTimes
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, HostActivity, Report
from decodescope.analyzer.schema.run_report import Accuracy, Interval, RunReport
from decodescope.analyzer.schema.step_report import (
    Bandwidth,
    InterruptionReport,
    StepKindReport,
    StructureReport,
)
from decodescope.analyzer.tracks.build import step_tracks
from tests.helpers.kineto_events import call, op, span, trace_of

HOSTILE = (
    '</script></style></title><img src=x onerror="window.hacked=1">\'`{{7*7}}\x1b[31m\u202e&amp;'
)
CAPTURE: dict[str, Any] = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "model": "llama@random",
    "weights": "random",
    "variant": "eager",
    "dtype": "bf16",
    "batch": 1,
    "context": 4,
    "position": 4,
    "steps": 2,
    "bytes_per_step": 480_000,
    "unprofiled_step_ns": 9000,
    "decodescope_version": "0",
}
KERNELS = ("nvjet_tst_64x8", "flash_fwd_splitkv", "vectorized_elementwise_kernel", "reduce_kernel")
RATES = {"eager": (107.0, 106.2, 107.9, 106.6), "compiled": (655.0, 657.5, 656.1, 655.9)}


def sample_analysis(
    ops_per_step: int = 8, names: tuple[str, ...] = KERNELS, **capture: Any
) -> Analysis:
    """Two steps of short ops on two streams, each with its launch call inside ranges."""
    events = []
    for step in range(2):
        start = 1_000 + step * ops_per_step * 1_000
        events.append(span(start, start + ops_per_step * 1_000 - 10, f"decode_step_{step}"))
        events.append(span(start + 5, start + ops_per_step * 1_000 - 20, "layer.0"))
        for place in range(ops_per_step):
            at, correlation = start + place * 1_000 + 20, step * ops_per_step + place + 1
            name = names[place % len(names)]
            events.append(call(at, at + 100, correlation))
            events.append(
                op(at + 200, at + 600, correlation, name=name, stream=7 + 6 * (place % 3 == 2))
            )
    return analyze(trace_of(*events, decodescope={**CAPTURE, **capture}))


def sample_view(name: str = "eager", ops_per_step: int = 8, **more: Any) -> VariantView:
    analysis = sample_analysis(ops_per_step, **more)
    return VariantView(name, analysis.report, step_tracks(analysis, 0))


def full_report(report: Report, text: str = "") -> Report:
    """`report` with every optional figure filled, so that each branch of the page is shown;
    `text` goes into every free text."""
    replace = msgspec.structs.replace
    gaps = tuple(
        replace(
            gap,
            label="python",
            call=f"cudaLaunchKernel{text}",
            range=f"decode_step/{text}",
            host=HostActivity(text or "decode_step", f"aten::mm{text}", None),
            prev=text or gap.prev,
        )
        for gap in report.largest_gaps
    )
    call = f"cudaEventSynchronize{text}"
    held = InterruptionReport(7, 463_000_000, call, "wait", f"it waited{text}", 0, 1)
    roofline = Roofline(2, 1000, 5000, 70_000, 5e12, 7e13, "memory", 0.83)
    first, *others = report.kernels
    return replace(
        report,
        largest_gaps=gaps,
        kernels=(replace(first, roofline=roofline), *others),
        ranges=tuple(
            replace(found, confidence="partial", matched=0.875, kind="operator")
            for found in report.ranges
        ),
        health=replace(
            report.health,
            status="degraded",
            unlinked_gpu_ops=3,
            findings=(Finding("clock", f"a clock went back {text}"),),
        ),
        source=replace(report.source, path=f"/tmp/{text}trace.json"),
        interruptions=(held,),
        answer=replace(report.answer, interruptions_ns=463_000_000),
        structure=StructureReport("repetition", 24, 11, (17, 18), 4, "partial", (12, 12), 0),
        step_kinds=(StepKindReport("decode", 2, 32, 55_086, 32, 7990),),
    )


def sample_run(variant: str, round_: int, tokens_per_s: float, report: Report) -> RunReport:
    step_ns = round(1e9 / tokens_per_s)
    return RunReport(
        schema_version=SCHEMA_VERSION,
        model="llama@random",
        weights="random",
        variant=variant,
        device="cuda",
        device_name="NVIDIA H200",
        dtype="bf16",
        batch=1,
        context=4,
        tokens=64,
        prompt_token_ids=[[1, 2]],
        output_token_ids=[[3, 4]],
        output_text=None,
        timed_steps=50,
        tokens_per_s=tokens_per_s,
        prefill_ns=12_000_000,
        step_ns=StepTimes(step_ns, step_ns + 9000, step_ns + 90_000, step_ns + 500),
        launch_calls_per_step=8.0,
        gpu_ops_per_step=8.0,
        gpu_idle_fraction=0.6,
        bytes_per_step=480_000,
        bandwidth=Bandwidth(2.6e11, 4.6e12, 4.8e12, 0.0578, "measured"),
        answer=report.answer,
        health=report.health,
        environment={"torch": "2.9.0", "gpu": "NVIDIA H200", "driver": None, "round_seed": round_},
        round=round_,
    )


def sample_pair(base: str, other: str, speed: SpeedRatio | None, text: str = "") -> Pair:
    missing = Change(None, None)
    ranges = (
        RangeChange(
            "layer.*/norm+qkv",
            (f"layer.*/norm{text}", "layer.*/q_proj"),
            Change(61_000.0, 22_000.0),
            Change(9_000.0, 0.0),
            Change(9.0, 1.0),
            Change(9.0, 1.0),
            Change(61_000.0, 22_000.0),
        ),
        RangeChange(
            f"sampling{text}",
            (),
            Change(None, 3_000.0),
            missing,
            Change(None, 2.0),
            missing,
            Change(None, 3_000.0),
        ),
    )
    return Pair(base, other, speed, ranges)


def sample_comparison(report: Report, text: str = "") -> Comparison:
    """Two variants in four interleaved rounds; `text` goes into every free text."""
    runs = tuple(
        sample_run(variant + text, round_, RATES[variant][round_], report)
        for round_ in range(4)
        for variant in RATES
    )
    accuracy = Accuracy(
        f"fp32{text}",
        f"a text{text}",
        256,
        0.0041,
        3.2e-5,
        0.992,
        8.31,
        1.0004,
        kl_interval=Interval(2.9e-5, 3.5e-5, 0.95),
        positions_needed={"perplexity_ratio": 900},
    )
    variants = (
        VariantRates(
            f"eager{text}", RATES["eager"], 106.925, Interval(106.1, 107.8, 0.95), accuracy
        ),
        VariantRates(f"compiled{text}", RATES["compiled"], 656.125, None, None),
    )
    speed = SpeedRatio(6.136, Interval(6.08, 6.19, 0.95), "faster")
    pairs = (
        sample_pair(f"eager{text}", f"compiled{text}", speed, text),
        sample_pair("a", "b", SpeedRatio(0.98, None, "unknown", f"too few rounds {text}")),
    )
    finding = Finding("rounds", f"few rounds {text}")
    standings = (
        Standing(f"compiled{text}", 656.125, 0.004, ()),
        Standing(f"eager{text}", 106.925, 0.03, (f"compiled{text}",)),
    )
    result = ComparisonResult(4, variants, pairs, (finding,), standings)
    return Comparison(SCHEMA_VERSION, runs, {}, result)


def sample_diff(base: Report, other: Report) -> Diff:
    answer = diff_answer((base,), (other,))
    pair = sample_pair("before", "after", None)
    finding = Finding("one_window", "steps of one window depend on each other")
    return Diff(SCHEMA_VERSION, answer, base, other, pair, (finding,))
