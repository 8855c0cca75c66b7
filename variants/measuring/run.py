"""`decodescope run`: one variant, measured, profiled and analysed into a `RunReport`."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture import ProfilerSession
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.files import write_atomically
from decodescope.analyzer.protocol import WorkerConfig
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.reports.distributions import step_times, tokens_per_s
from decodescope.analyzer.reports.per_step import (
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
)
from decodescope.analyzer.roofline.peaks import bandwidth, datasheet_peak_bytes_per_s
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Observer
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.variants.machine.environment import environment
from decodescope.variants.machine.read_peak import read_peak
from decodescope.variants.measuring.graph_reference import try_reference
from decodescope.variants.measuring.measure import Measurement, measure_run
from decodescope.variants.measuring.preparation import Prepared, prepare
from decodescope.variants.registry import build_variant


def run_variant(
    config: WorkerConfig, trace_path: Path | None, say: Callable[[str], None]
) -> RunReport:
    """Measure `config.variant`; keeps the profiled window at `trace_path` unless it is None.

    Raises:
        InputError: an unknown variant, a trace path that is not .json or .json.gz, or as `prepare`.
        ModelError, MissingRequirement: as `prepare`, `build_variant` and `measure_run`.
    """
    if trace_path is not None and not trace_path.name.endswith((".json", ".json.gz")):
        raise InputError(f"--trace {trace_path}: must end in .json or .json.gz")
    prepared = prepare(config, say)
    say(f"building {config.variant}")
    step = build_variant(config.variant, prepared.loaded, prepared.workload, prepared.device)
    say("starting the profiler")
    session = ProfilerSession(prepared.device)
    session.warm_up()
    peak = read_peak(prepared.device)
    subject = prepared.subject(config.variant, peak, session.kernel_floor_ns)
    prompt = prepared.prompt(0)
    reference = try_reference(step, subject, prompt, session, say)
    say(f"decoding {prepared.workload.new_tokens} tokens")
    with tempfile.TemporaryDirectory(prefix="decodescope-") as folder:
        path = Path(folder, "window.json" + ("" if trace_path is None else trace_path.suffix))
        measured = measure_run(step, subject, prompt, session, path, reference)
        if trace_path is not None:
            write_atomically(trace_path, path.read_bytes())
        say("analysing the window")
        analysis = analyze(load(path))
    return _report(prepared, measured, analysis)


def _report(prepared: Prepared, measured: Measurement, analysis: Analysis) -> RunReport:
    capture, window, workload = measured.capture, analysis.report, prepared.workload
    times = step_times(measured.step_ns)
    on_cuda, decode = prepared.device == "cuda", prepared.loaded.decode
    sheet = datasheet_peak_bytes_per_s(capture.device_name) if on_cuda else None
    return RunReport(
        schema_version=SCHEMA_VERSION,
        model=capture.model,
        weights=capture.weights,
        variant=capture.variant,
        device=prepared.device,
        device_name=capture.device_name,
        dtype=workload.dtype,
        batch=workload.batch,
        context=workload.context,
        tokens=workload.new_tokens,
        sampling=workload.sampling,
        prompt_token_ids=measured.prompt_token_ids,
        output_token_ids=measured.output_token_ids,
        output_text=decode(measured.output_token_ids[0]) if decode else None,
        timed_steps=len(measured.step_ns),
        tokens_per_s=tokens_per_s(measured.step_ns, workload.batch),
        prefill_ns=measured.prefill_ns,
        step_ns=times,
        launch_calls_per_step=launch_calls_per_step(window) if on_cuda else None,
        gpu_ops_per_step=gpu_ops_per_step(window),
        gpu_idle_fraction=idle_fraction(window),
        bytes_per_step=measured.bytes_per_step,
        bandwidth=bandwidth(
            measured.bytes_per_step, times.p50, capture.measured_peak_bytes_per_s, sheet
        ),
        observer=window.observer or Observer(None, None, None),
        waterfall=window.waterfall,
        verdict=window.verdict,
        health=replace(
            window.health, findings=(*prepared.loaded.findings, *window.health.findings)
        ),
        environment=environment(),
    )
