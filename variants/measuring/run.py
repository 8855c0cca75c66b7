"""`decodescope run`: one variant, measured, profiled and analysed into a `RunReport`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from msgspec.structs import replace

from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.analyzer.reports.rank_analysis import analyze_ranks
from decodescope.analyzer.reports.step_figures import (
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.roofline.peaks import bandwidth, datasheet_peak_bytes_per_s
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, Health, Report
from decodescope.analyzer.schema.run_report import INTERPRETED, RunReport
from decodescope.variants.machine.environment import choose_device, device_name, environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.machine.read_peak import read_peak
from decodescope.variants.measuring.measure import Measurement, measure_run
from decodescope.variants.measuring.preparation import Prepared, prepare, require_weights
from decodescope.variants.measuring.window import mean_bytes_read, try_reference
from decodescope.variants.parallel.exchange import from_rank_0, gather_windows, keep_windows
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.registry import build_variant, is_interpreted
from decodescope.variants.steps.decode_step import DecodeStep


def run_variant(
    config: WorkerConfig,
    trace_path: Path | None,
    say: Callable[[str], None],
    ranks: Ranks = ALONE,
) -> RunReport | None:
    """Measure `config.variant`; keeps the profiled window at `trace_path` unless it is None, of
    several `ranks` one each at `rank_path`. Only rank 0 has a report.

    A variant that Triton's interpreter runs is neither timed nor profiled: its report has tokens.

    Raises:
        InputError: an unknown variant, a trace path for an interpreted variant, or as `prepare`.
        ModelError, MissingRequirement: as `prepare`, `build_variant` and `measure_run`.
    """
    device = choose_device(config.device)
    interpreted = is_interpreted(config.variant, device)
    if interpreted and trace_path is not None:
        raise InputError(
            f"--trace {trace_path}: variant {config.variant} runs in Triton's interpreter here, "
            "where a profile would say nothing of its kernels; leave --trace out"
        )
    prepared = require_weights(prepare(config, say, ranks), config.variant, say)
    config = prepared.config
    say(f"building {config.variant}")
    step = build_variant(config.variant, prepared.loaded, prepared.workload, device)
    if interpreted:
        report = _interpreted_report(prepared, step, say)
        return None if ranks.rank else report
    say("starting the profiler")
    session = ProfilerSession(device)
    session.warm_up()
    # Ranks may share a GPU, and it is measured alone.
    peak = from_rank_0(read_peak() if device == "cuda" and not ranks.rank else None, ranks)
    subject = prepared.subject(config.variant, peak, session.kernel_floor_ns)
    prompt = prepared.prompt(0)
    reference = try_reference(step, subject, prompt, session, say)
    say(f"decoding {prepared.workload.new_tokens} tokens")
    with WorkFolder() as folder:
        path = Path(folder, "window.json" + ("" if trace_path is None else trace_path.suffix))
        measured = measure_run(step, subject, prompt, session, path, reference)
        windows = gather_windows(path, ranks)
        if ranks.rank:
            return None
        if trace_path is not None:
            keep_windows(windows, trace_path)
        say("analysing the window")
        window, communication, findings = _analysed(windows)
    report = _measured_report(prepared, step, measured, window)
    health = replace(report.health, findings=(*report.health.findings, *findings))
    return replace(report, communication=communication, health=health)


def _analysed(
    windows: Sequence[Path],
) -> tuple[Report, CommunicationReport | None, tuple[Finding, ...]]:
    """The report of rank 0's window; of several also who waits for whom, and what is wrong with
    the set."""
    if len(windows) == 1:
        return analyze(load(windows[0])).report, None, ()
    together = analyze_ranks(windows).report
    return together.ranks[0].report, together.communication, together.findings


def _measured_report(
    prepared: Prepared, step: DecodeStep, measured: Measurement, window: Report
) -> RunReport:
    capture = measured.capture
    times = step_times(measured.step_ns)
    on_cuda = prepared.device == "cuda"
    sheet = datasheet_peak_bytes_per_s(capture.device_name) if on_cuda else None
    untimed = _untimed_report(prepared, measured.output_token_ids, measured.bytes_per_step)
    return replace(
        untimed,
        timed_steps=len(measured.step_ns),
        tokens_per_s=tokens_per_s(measured.step_ns, prepared.workload.batch),
        prefill_ns=measured.prefill_ns,
        step_ns=times,
        launch_calls_per_step=launch_calls_per_step(window) if on_cuda else None,
        gpu_ops_per_step=gpu_ops_per_step(window),
        gpu_idle_fraction=idle_fraction(window),
        bandwidth=bandwidth(
            measured.bytes_per_step, times.p50, capture.measured_peak_bytes_per_s, sheet
        ),
        answer=window.answer,
        health=replace(
            window.health,
            findings=(*prepared.loaded.findings, *step.findings, *window.health.findings),
        ),
    )


def _interpreted_report(
    prepared: Prepared, step: DecodeStep, say: Callable[[str], None]
) -> RunReport:
    workload = prepared.workload
    with memory_errors(f"decoding with variant {prepared.config.variant}", prepared.device):
        ids = [step.prefill(prepared.prompt(0))]
        for number in range(1, workload.new_tokens):
            say(f"interpreting step {number} of {workload.new_tokens - 1}")
            ids.append(step.step())
    positions = range(workload.context, workload.context + max(1, workload.new_tokens - 1))
    output_ids = torch.stack(ids, dim=1).tolist()
    report = _untimed_report(prepared, output_ids, mean_bytes_read(step, positions))
    message = f"{prepared.config.variant} {INTERPRETED}"
    findings = (*prepared.loaded.findings, Finding("interpreted", message))
    return replace(
        report,
        interpreted=True,
        answer=Answer(
            because=("nothing was timed",),
            next=("run it on a GPU, without TRITON_INTERPRET",),
        ),
        health=Health("degraded", 0, findings),
    )


def _untimed_report(
    prepared: Prepared, output_token_ids: list[list[int]], bytes_per_step: int
) -> RunReport:
    loaded, workload = prepared.loaded, prepared.workload
    return RunReport(
        schema_version=SCHEMA_VERSION,
        model=loaded.name,
        weights=loaded.weights,
        variant=prepared.config.variant,
        device=prepared.device,
        device_name=device_name(prepared.device),
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        tokens=workload.new_tokens,
        sampling=workload.sampling,
        prompt_token_ids=prepared.prompt(0).tolist(),
        output_token_ids=output_token_ids,
        output_text=loaded.decode(output_token_ids[0]) if loaded.decode else None,
        timed_steps=0,
        tokens_per_s=None,
        prefill_ns=None,
        step_ns=None,
        launch_calls_per_step=None,
        gpu_ops_per_step=None,
        gpu_idle_fraction=None,
        bytes_per_step=bytes_per_step,
        bandwidth=None,
        answer=Answer(),
        health=Health("ok", 0, ()),
        environment=environment(),
        tp=loaded.ranks.size,
        ep=prepared.config.ep,
    )
