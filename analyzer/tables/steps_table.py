"""The steps of a trace, their kinds, and idle time by class."""

from collections.abc import Sequence
from operator import attrgetter

from msgspec.structs import replace

from decodescope.analyzer.names.fitted_names import cut_middle
from decodescope.analyzer.schema.report import GAP_CLASSES, Report, StepReport
from decodescope.analyzer.schema.step_report import StepKindReport
from decodescope.analyzer.tables.columns import (
    COUNT,
    DETAIL,
    DURATION,
    NAME,
    PERCENT,
    PLACE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.tables.figures import quotient
from decodescope.analyzer.vocabulary.words import ops_word, step_sizes

_LEAST_NAME = 16


def steps_table(report: Report, most: int | None = None) -> Table[StepReport]:
    """The first `most` steps; a class of gaps that occurred has a column."""
    classes = [name for name in GAP_CLASSES if any(name in step.gaps for step in report.steps)]
    names = _names(report.steps)
    return Table(
        "steps",
        (
            Column(
                "name",
                "step",
                NAME,
                "The step's marker, with its number.",
                text=lambda step: names[step.index],
                fit=lambda step, cells: (
                    cut_middle(names[step.index], cells)
                    if cells >= _LEAST_NAME
                    else f"{step.index}"
                ),
                sort=attrgetter("index"),
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
            Column(
                "idle_share",
                "idle",
                PERCENT,
                "Idle ÷ span.",
                quotient("idle_ns", "gpu_span_ns"),
                priority=3,
            ),
            Column(
                "launch_calls", "launches", COUNT, "Calls that put work on a device.", priority=1
            ),
            Column("gpu_ops", ops_word(report), COUNT, "The ops that they launched.", priority=2),
            *map(_class_column, classes),
        ),
        report.steps[:most],
        total=len(report.steps),
    )


def idle_by_step_table(report: Report, classes: int, most: int) -> Table[StepReport]:
    """The idle time of each step, in the `classes` with most of it and all others together."""
    sums = {name: sum(step.gaps.get(name, 0) for step in report.steps) for name in GAP_CLASSES}
    occurred = sorted((name for name in sums if sums[name]), key=lambda name: -sums[name])
    groups: dict[str, tuple[str, ...]] = {name: (name,) for name in occurred[:classes]}
    if len(occurred) > classes:
        groups["others"] = tuple(occurred[classes:])
    return Table(
        "steps",
        (
            Column("index", "step", PLACE, "The step's number."),
            Column("idle_ns", "all idle", DURATION, "Its idle time."),
            *(_group_column(name, group) for name, group in groups.items()),
        ),
        report.steps[:most],
        total=len(report.steps),
    )


def step_kinds_table(report: Report, most: int) -> Table[StepKindReport]:
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
            Column(
                "kind",
                "kind",
                TEXT,
                "Decode, prefill, both in one step (mixed), draft or verify.",
                text=lambda row: row.kind if row.steps else "no step",
            ),
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
            Column("min_ns", "min", DURATION, "The shortest time of such a step.", priority=4),
            Column("median_ns", "median step", DURATION, "The median time of such a step."),
            Column("p99_ns", "p99", DURATION, "99 % take at most that long.", priority=3),
            Column("gpu_ops", ops_word(report), COUNT, "The ops of all of them.", priority=5),
            Column(
                "attributed_ns",
                "busy",
                DURATION,
                "The attributed time of these ops.",
                priority=2,
            ),
        ),
        rows,
        total=len(report.step_kinds) + (outside_ops > 0),
    )


def _names(steps: Sequence[StepReport]) -> dict[int, str]:
    """The name of each step by its index, with that number where the markers have none of their
    own."""
    numbered = len({step.name for step in steps}) == len(steps)
    return {
        step.index: step.name
        if numbered and step.name[-1:].isdigit()
        else f"{step.name} {step.index}"
        for step in steps
    }


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
