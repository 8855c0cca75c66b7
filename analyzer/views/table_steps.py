"""Table of steps."""

from rich.table import Table

from decodescope.analyzer.formatting import count, duration, percent, plain_text
from decodescope.analyzer.schema.report import Report, StepReport
from decodescope.analyzer.views.names import cut_middle
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    on_cpu,
    ops_word,
    plain_table,
    with_rest,
)

_STEP_ROWS = 10


def steps_table(report: Report, width: int) -> Table:
    """One row for each of the first steps; narrow tables leave out its name and the host's time."""
    span = "op span" if on_cpu(report) else "GPU span"
    medium = width >= MEDIUM_WIDTH
    table = plain_table(
        *("step", *(["host"] if medium else []), span, "busy", "idle"),
        *(*(["idle %"] if medium else []), "launches", ops_word(report)),
    )
    shown = report.steps[:_STEP_ROWS]
    for step in shown:
        idle_ns = step.idle_ns if step.gpu_span_ns else None
        share = idle_ns / step.gpu_span_ns if idle_ns is not None and step.gpu_span_ns else None
        table.add_row(
            _name(step, width - 64) if medium else f"{step.index}",
            *([duration(step.host_ns)] if medium else []),
            duration(step.gpu_span_ns),
            *(duration(step.busy_ns if step.gpu_ops else None), duration(step.idle_ns)),
            *([percent(share)] if medium else []),
            *(count(step.launch_calls), count(step.gpu_ops)),
        )
    return with_rest(table, len(report.steps), len(shown), "steps")


def _name(step: StepReport, cells: int) -> str:
    name = step.name if step.name[-1:].isdigit() else f"{step.name} {step.index}"
    return cut_middle(plain_text(name), cells)
