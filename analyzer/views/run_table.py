"""One measured run as text for a terminal; reads nothing but the `RunReport`."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import (
    bytes_size,
    duration,
    number,
    percent,
    rate,
    sampling_words,
    weights_note,
)
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.views.table_parts import verdict_text, waterfall_section


def run_table(report: RunReport) -> RenderableType:
    """Title, figures, waterfall, verdict, findings and the generated text."""
    parts: list[RenderableType] = [_title(report), "", _figures(report)]
    parts += [*waterfall_section(report.waterfall), "", verdict_text(report.verdict)]
    parts += [
        Text(f"note: {finding.message}", style="yellow") for finding in report.health.findings
    ]
    if report.output_text:
        parts += ["", Text("Generated text", style="bold"), Text(report.output_text)]
    return Group(*parts)


def _title(report: RunReport) -> Text:
    title = Text(report.model, style="bold")
    if note := weights_note(report.weights):
        title.append(f" ({note})", style="bold yellow")
    title.append(
        f" · {report.variant} · {report.dtype} · batch {report.batch} · "
        f"context {report.context} + {report.tokens} tokens\n"
        f"{sampling_words(report.sampling)} · device: {report.device} · {report.device_name}",
        style="not bold",
    )
    return title


def _figures(report: RunReport) -> Table:
    bandwidth, observer, step = report.bandwidth, report.observer, report.step_ns
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    timed = f"({report.timed_steps} unprofiled steps)"
    table.add_row("tokens/s", f"{rate(report.tokens_per_s)}  {timed}")
    table.add_row(
        "step",
        f"p50 {duration(step.p50)}  p90 {duration(step.p90)}  p99 {duration(step.p99)}  "
        f"mean {duration(step.mean)}",
    )
    table.add_row("prefill", duration(report.prefill_ns))
    operations = "GPU ops" if report.device == "cuda" else "leaf operators"
    idle = "GPU idle" if report.device == "cuda" else "between operators"
    table.add_row(
        "per step",
        f"{number(report.launch_calls_per_step)} launch calls, "
        f"{number(report.gpu_ops_per_step)} {operations}, "
        f"{idle} {percent(report.gpu_idle_fraction)} %",
    )
    table.add_row("must read", f"{bytes_size(report.bytes_per_step)} a step")
    table.add_row("reads", _bandwidth_text(report))
    if observer.ratio is not None:
        table.add_row(
            "observer",
            f"{duration(observer.unprofiled_step_ns)} unprofiled, "
            f"{duration(observer.profiled_step_ns)} profiled: x{observer.ratio:.2f}",
        )
    if bandwidth.mbu is not None:
        table.add_row("MBU", f"{percent(bandwidth.mbu)} % of the {bandwidth.mbu_of} peak")
    return table


def _bandwidth_text(report: RunReport) -> str:
    bandwidth = report.bandwidth
    text = f"{bytes_size(bandwidth.achieved_bytes_per_s)}/s"
    peaks = [
        f"{name} peak {bytes_size(peak)}/s"
        for name, peak in (
            ("measured", bandwidth.measured_peak_bytes_per_s),
            ("datasheet", bandwidth.datasheet_peak_bytes_per_s),
        )
        if peak is not None
    ]
    return f"{text}  ({', '.join(peaks)})" if peaks else text
