"""The steps of a trace, and their kinds."""

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType

from msgspec.structs import replace

from decodescope.analyzer.schema.report import GAP_CLASSES, Report
from decodescope.analyzer.schema.step_report import StepKindReport, StepReport
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import DETAIL, Column, Table
from decodescope.analyzer.vocabulary.words import counted_steps, ops_word, step_sizes

# The step with the median time, as a row above all steps.
MEDIAN = -1
NO_LIMITS: Mapping[int, int] = MappingProxyType({})


def steps_table(
    report: Report,
    most: int | None = None,
    limits_ns: Mapping[int, int] = NO_LIMITS,
    with_median: bool = False,
) -> Table[StepReport]:
    """The first `most` steps, below the median one if that is wanted; `limits_ns` are those that
    are known, by the step's index. A class of gaps that occurred has a column, and markers that
    differ."""
    rows, answer = report.steps[:most], report.answer
    if with_median and answer.step is not None:
        kind = f"of {counted_steps(answer.steps, answer.kind)}"
        rows = (replace(report.steps[answer.step], index=MEDIAN, kind=kind), *rows)
    named = len({step.name for step in report.steps}) > 1

    def over_ns(step: StepReport) -> int | None:
        limit_ns = limits_ns.get(answer.step or 0 if step.index == MEDIAN else step.index)
        return None if limit_ns is None or step.time_ns is None else step.time_ns - limit_ns

    return Table(
        "steps",
        (
            *_STEP,
            *([kinds.DURATION("over_ns", "over limit", over_ns)] if limits_ns else ()),
            *_TIMES,
            kinds.COUNT("gpu_ops", ops_word(report), priority=3),
            kinds.NAME(
                "name", "marker", lambda step: step.name if named else None, priority=8, tone="dim"
            ),
            *map(_class_column, GAP_CLASSES),
        ),
        rows,
        total=len(report.steps),
        key=attrgetter("index"),
    )


def step_kinds_table(report: Report, most: int | None = None) -> Table[StepKindReport]:
    """One row for each kind and batch of steps, and one for the ops outside of all steps: the ops
    and their times add up to those of all devices."""
    rows = [*report.step_kinds[:most]]
    outside_ops = sum(device.gpu_ops for device in report.devices)
    outside_ops -= sum(row.gpu_ops for row in report.step_kinds)
    if outside_ops:
        busy_ns = sum(device.busy_ns for device in report.devices)
        busy_ns -= sum(row.attributed_ns for row in report.step_kinds)
        outside = StepKindReport("unknown", 0, None, None, None, None)
        rows.append(replace(outside, gpu_ops=outside_ops, attributed_ns=busy_ns))
    return Table(
        "kinds of steps",
        (
            kinds.TEXT("kind", "kind", text=lambda row: row.kind if row.steps else "no step"),
            kinds.COUNT("steps", "steps"),
            kinds.COUNT("batch", "batch", text=lambda row: step_sizes(row, report)[0], always=True),
            kinds.COUNT("query_tokens", "tokens computed", priority=1, always=True),
            kinds.COUNT(
                "kv_tokens", "KV tokens", text=lambda row: step_sizes(row, report)[1], always=True
            ),
            kinds.DURATION("min_ns", "min", priority=4),
            kinds.DURATION("median_ns", "median step"),
            kinds.DURATION("p99_ns", "p99", priority=3),
            kinds.COUNT("gpu_ops", ops_word(report), priority=5),
            kinds.DURATION("attributed_ns", "busy", priority=2),
        ),
        rows,
        total=len(report.step_kinds) + (outside_ops > 0),
    )


_STEP: tuple[Column[StepReport], ...] = (
    kinds.PLACE(
        "index", "step", text=lambda step: "median" if step.index == MEDIAN else f"{step.index}"
    ),
    kinds.TEXT("kind", "kind"),
    kinds.COUNT("batch", "batch", priority=3),
    kinds.COUNT("kv_tokens", "KV tokens", priority=4),
    kinds.DURATION("time_ns", "time"),
)
_TIMES: tuple[Column[StepReport], ...] = (
    kinds.DURATION("interrupted_ns", "interrupted", lambda step: step.interrupted_ns or None),
    kinds.DURATION("host_ns", "host", priority=6),
    kinds.DURATION("gpu_span_ns", "span", priority=7),
    kinds.DURATION(
        "busy_ns", "busy", lambda step: step.busy_ns if step.gpu_ops else None, priority=2
    ),
    kinds.DURATION("idle_ns", "idle", priority=1),
    kinds.COUNT("launch_calls", "launches", priority=2),
)


def _class_column(name: str) -> Column[StepReport]:
    return kinds.DURATION(f"gaps.{name}", name, lambda step: step.gaps.get(name), priority=DETAIL)
