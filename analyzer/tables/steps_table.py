"""The steps of a trace, their kinds, and their idle time by class."""

from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.schema.report import GAP_CLASSES, Report, StepReport
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.tables.columns import (
    COUNT,
    DETAIL,
    DURATION,
    PERCENT,
    PLACE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.vocabulary.words import ops_word, step_sizes

_LEAST_NAME = 16


def steps_table(report: Report, most: int | None = None) -> Table[StepReport]:
    """The first `most` steps; a class of gaps that occurred has a column."""
    classes = [name for name in GAP_CLASSES if any(name in step.gaps for step in report.steps)]
    columns: tuple[Column[StepReport], ...] = (
        Column(
            "name",
            "step",
            TEXT,
            "The step's marker, with its number.",
            text=_name,
            fit=lambda step, cells: _short_name(step, cells),
            sort=lambda step: step.index,
            flexible=True,
            least=4,
        ),
        Column("host_ns", "host", DURATION, "The length of the host's marker.", priority=4),
        Column(
            "gpu_span_ns",
            "op span" if report.on_cpu else "GPU span",
            DURATION,
            "From the start of its first op to the end of its last one.",
        ),
        Column(
            "busy_ns",
            "busy",
            DURATION,
            "The time of the span in which any op ran.",
            lambda step: step.busy_ns if step.gpu_ops else None,
        ),
        Column("idle_ns", "idle", DURATION, "The rest of the span."),
        Column("idle_share", "idle", PERCENT, "Idle ÷ span.", _idle_share, priority=3),
        Column("launch_calls", "launches", COUNT, "Calls that put work on a device.", priority=1),
        Column("gpu_ops", ops_word(report), COUNT, "The ops that they launched.", priority=2),
        *(_class_column(name) for name in classes),
    )
    return Table(
        "steps",
        columns,
        report.steps[:most],
        total=len(report.steps),
        key=lambda step: step.index,
    )


def idle_by_step_table(report: Report, classes: int, most: int) -> Table[StepReport]:
    """The idle time of each step, in the `classes` with most of it and all others together."""
    sums = {name: sum(step.gaps.get(name, 0) for step in report.steps) for name in GAP_CLASSES}
    occurred = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in occurred[:classes]}
    if len(occurred) > classes:
        groups["others"] = tuple(occurred[classes:])
    columns: tuple[Column[StepReport], ...] = (
        Column("index", "step", PLACE, "The step's number."),
        Column("idle_ns", "all idle", DURATION, "Its idle time."),
        *(_group_column(name, group) for name, group in groups.items()),
    )
    return Table(
        "steps", columns, report.steps[:most], total=len(report.steps), key=lambda step: step.index
    )


def step_kinds_table(report: Report, most: int) -> Table[StepKindReport]:
    """One row for each kind and batch of steps."""
    columns: tuple[Column[StepKindReport], ...] = (
        Column("kind", "kind", TEXT, "Decode, prefill, or both in one step."),
        Column("steps", "steps", COUNT, "How many."),
        Column(
            "batch",
            "batch",
            COUNT,
            "Requests of a step; “given”: as --batch says.",
            text=lambda row: step_sizes(row, report)[0],
            always=True,
        ),
        Column(
            "query_tokens",
            "tokens computed",
            COUNT,
            "The tokens that a step computes, by the median.",
            priority=1,
            always=True,
        ),
        Column(
            "kv_tokens",
            "KV tokens",
            COUNT,
            "The KV lengths of all requests, by the median; “given”: as --context says.",
            text=lambda row: step_sizes(row, report)[1],
            always=True,
        ),
        Column("median_ns", "median step", DURATION, "The median time of such a step."),
    )
    return Table(
        "kinds of steps",
        columns,
        report.step_kinds[:most],
        total=len(report.step_kinds),
        key=lambda row: (row.kind, row.batch),
    )


def _name(step: StepReport) -> str:
    return step.name if step.name[-1:].isdigit() else f"{step.name} {step.index}"


def _short_name(step: StepReport, cells: int) -> str:
    return cut_middle(_name(step), cells) if cells >= _LEAST_NAME else f"{step.index}"


def _idle_share(step: StepReport) -> float | None:
    if step.idle_ns is None or not step.gpu_span_ns:
        return None
    return step.idle_ns / step.gpu_span_ns


def _class_column(name: str) -> Column[StepReport]:
    return Column(
        f"gaps.{name}",
        name,
        DURATION,
        f"The idle time of the class {name}.",
        lambda step: step.gaps.get(name),
        priority=DETAIL,
    )


def _group_column(name: str, classes: tuple[str, ...]) -> Column[StepReport]:
    def ns(step: StepReport) -> int | None:
        return sum(step.gaps.get(name, 0) for name in classes) if step.gpu_ops else None

    return Column(f"gaps.{name}", name, DURATION, "The idle time of the class.", ns)
