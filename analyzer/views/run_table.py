"""One measured run as text for a terminal."""

from collections.abc import Iterator

from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.text import Text

from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.schema.step_report import Bandwidth
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    duration,
    number,
    parallel_words,
    percent,
    rate,
    sampling_words,
    weights_note,
)
from decodescope.analyzer.views.table_parts import answer_block, facts, section
from decodescope.analyzer.views.waiting_sections import waiting_sections
from decodescope.analyzer.vocabulary.answer_words import lines_of

_ANSWER_WIDTH = 80


def run_table(report: RunReport) -> RenderableType:
    return Group(*_parts(report))


def _parts(report: RunReport) -> Iterator[RenderableType]:
    yield _title(report)
    yield ""
    yield facts(_rows(report))
    # The rows above have the rate and the unprofiled step time of all timed steps.
    profiled = replace(report.answer, tokens_per_s=None, unprofiled_step_ns=None)
    yield from answer_block(lines_of(profiled), profiled, _ANSWER_WIDTH)
    yield from (
        Text(f"note: {finding.message}", style="yellow") for finding in report.health.findings
    )
    if report.communication is not None:
        yield from waiting_sections(report.communication, _ANSWER_WIDTH, report.tp)
    if report.output_text:
        yield from section("Generated text", Text(report.output_text))


def _title(report: RunReport) -> Text:
    title = Text(report.model, style="bold")
    if note := weights_note(report.weights):
        title.append(f" ({note})", style="bold yellow")
    title.append(f" · {report.variant}", style="not bold")
    if report.interpreted:
        title.append(" (interpreted)", style="bold yellow")
    if report.tp > 1:
        title.append(f" · {parallel_words(report.tp, report.ep)}", style="not bold")
    title.append(
        f" · {report.dtype} · batch {report.batch} · "
        f"context {report.context} + {report.tokens} tokens\n"
        f"{sampling_words(report.sampling)} · device: {report.device} · {report.device_name}",
        style="not bold",
    )
    return title


def _rows(report: RunReport) -> dict[str, str]:
    bandwidth, answer = report.bandwidth, report.answer
    on_gpu = report.device == "cuda"
    must_read = f"{bytes_size(report.bytes_per_step)} a step" + ", each rank" * (report.tp > 1)
    if report.step_ns is None or bandwidth is None:
        why = "interpreted" if report.interpreted else UNKNOWN
        return {"tokens/s": why, "must read": must_read}
    rows = {
        "tokens/s": f"{rate(report.tokens_per_s)}  ({report.timed_steps} unprofiled steps)",
        "step": "  ".join(
            f"{name} {duration(getattr(report.step_ns, name))}"
            for name in ("p50", "p90", "p99", "mean")
        ),
        "prefill": duration(report.prefill_ns),
        "per step": (
            f"{number(report.launch_calls_per_step)} launch calls, "
            f"{number(report.gpu_ops_per_step)} {'GPU ops' if on_gpu else 'leaf operators'}, "
            f"{'GPU idle' if on_gpu else 'between operators'} "
            f"{percent(report.gpu_idle_fraction)} %"
        ),
        "must read": must_read,
        "reads": _bandwidth_text(bandwidth),
    }
    if answer.profiler_ratio is not None:
        rows["observer"] = (
            f"{duration(answer.unprofiled_step_ns)} unprofiled, "
            f"{duration(answer.step_ns)} profiled: x{answer.profiler_ratio:.2f}"
        )
    if bandwidth.mbu is not None:
        rows["MBU"] = f"{percent(bandwidth.mbu)} % of the {bandwidth.mbu_of} peak"
    return rows


def _bandwidth_text(bandwidth: Bandwidth) -> str:
    text = f"{bytes_size(bandwidth.achieved_bytes_per_s)}/s"
    peaks = {
        "measured": bandwidth.measured_peak_bytes_per_s,
        "datasheet": bandwidth.datasheet_peak_bytes_per_s,
    }
    known = [
        f"{name} peak {bytes_size(peak)}/s" for name, peak in peaks.items() if peak is not None
    ]
    return f"{text}  ({', '.join(known)})" if known else text
