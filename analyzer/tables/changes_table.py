"""Changes from one side to the other: speed, figures of a step, its parts, and kernels by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from decodescope.analyzer.comparing.pair_changes import ALL_IDLE, KernelChange, kernel_changes
from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.comparison_report import Change, Pair, StepPartChange
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.columns import (
    COUNT,
    DURATION,
    EXACT_CHANGE,
    EXACT_MICROSECONDS,
    MICROSECONDS,
    NUMBER,
    RATIO,
    SIGNED_MICROSECONDS,
    TEXT,
    Column,
    Table,
    Tone,
    Unit,
)
from decodescope.analyzer.text.formatting import interval_text, ratio_text
from decodescope.analyzer.vocabulary.words import change_text, step_part_words, verdict_words

_NAME_CELLS = 12


@dataclass(frozen=True, slots=True)
class FigureChange:
    """A figure of both sides."""

    name: str
    change: Change
    unit: Unit


def changes_table(pair: Pair, step: str, ops: str) -> Table[FigureChange]:
    """The figures that any side has; `step` and `ops` name the step time and the ops."""
    rows = [
        row
        for row in _figures(pair, step, ops)
        if row.change.base is not None or row.change.other is not None
    ]
    columns: tuple[Column[FigureChange], ...] = (
        Column("name", "", TEXT, "The figure."),
        Column(
            "change.base",
            pair.base,
            TEXT_OF_NUMBER,
            "The base.",
            text=lambda row: row.unit.text(row.change.base),
            always=True,
        ),
        Column(
            "change.other",
            pair.other,
            TEXT_OF_NUMBER,
            "The other side.",
            text=lambda row: row.unit.text(row.change.other),
            always=True,
        ),
        Column(
            "change",
            "change",
            TEXT_OF_NUMBER,
            "How far the other side is from the base.",
            text=lambda row: change_text(row.change),
            sort=lambda row: changed_to(row.change),
            always=True,
        ),
    )
    return Table("figures", columns, rows)


TEXT_OF_NUMBER = Unit(str)


def _figures(pair: Pair, step: str, ops: str) -> Iterator[FigureChange]:
    yield FigureChange(step, pair.step_ns, DURATION)
    yield FigureChange("launch calls", pair.launch_calls, NUMBER)
    yield FigureChange(ops, pair.gpu_ops, NUMBER)
    yield FigureChange("busy", pair.busy_ns, DURATION)
    for name, change in pair.idle_ns.items():
        if name != ALL_IDLE and (change.base or change.other):
            yield FigureChange(f"idle: {name}", change, DURATION)
    yield FigureChange("idle, all", pair.idle_ns[ALL_IDLE], DURATION)


def step_parts_table(
    rows: tuple[StepPartChange, ...], what: str, names: tuple[str, str]
) -> Table[StepPartChange]:
    """The parts of a step; `what` they are: a role or a layer."""
    return Table(
        f"{what}s",
        step_part_columns(what, names),
        rows,
        key=lambda row: (row.kind, row.part),
        search=step_part_words,
    )


def whole_step_table(pair: Pair, what: str) -> Table[StepPartChange]:
    """The parts of the step by role or by layer, and the step that they add up to."""
    step = pair.step
    assert step is not None
    whole = StepPartChange("step", "role", step.base_ns, step.other_ns, step.change_ns)
    rows = step.roles if what == "role" else step.layers
    return step_parts_table((*rows, whole), what, (pair.base, pair.other))


def step_part_columns(what: str, names: tuple[str, str]) -> tuple[Column[StepPartChange], ...]:
    """The columns of the parts of a step of two sides."""
    base, other = (name[:_NAME_CELLS] for name in names)
    return (
        Column(
            "part",
            what,
            TEXT,
            "The part of the step that stands for each side.",
            step_part_words,
            flexible=True,
            least=16,
            tone=lambda row: "plain" if row.base_ops or row.other_ops else "dim",
        ),
        Column(
            "base_ns",
            base,
            EXACT_MICROSECONDS,
            "Its time in the base.",
            priority=2,
            always=True,
        ),
        Column(
            "other_ns",
            other,
            EXACT_MICROSECONDS,
            "Its time in the other side.",
            priority=1,
            always=True,
        ),
        Column(
            "change_ns",
            "change",
            EXACT_CHANGE,
            "How much more the other side takes.",
            sort=lambda row: abs(row.change_ns),
            tone=lambda row: moved_tone(row.change_ns),
        ),
        Column(
            "change",
            "change",
            TEXT_OF_NUMBER,
            "The same in per cent, or as a factor.",
            lambda row: changed_to(Change(row.base_ns, row.other_ns)),
            text=lambda row: relative_change(Change(row.base_ns, row.other_ns)),
            always=True,
            priority=3,
        ),
        Column("base_ops", "ops", COUNT, "Its ops in the base.", priority=5, tone="dim"),
        Column("other_ops", "→ ops", COUNT, "Its ops in the other side.", priority=4, tone="dim"),
    )


def relative_change(change: Change) -> str:
    """The change in per cent or as a factor; "new" or "gone" where one side has nothing."""
    if change.base is None:
        return "new"
    return "gone" if change.other is None else change_text(change)


def moved_tone(ns: float) -> Tone:
    """More time is bad, less is good; the sign says so without colour."""
    return "bad" if ns > 0 else "good" if ns < 0 else "dim"


def changed_to(change: Change) -> float | None:
    """`other` over `base`."""
    base, other = change.base, change.other
    return other / base if base and other is not None else None


def kernel_changes_table(
    base: Report, other: Report, names: tuple[str, str]
) -> Table[KernelChange]:
    """The kernel whose time a step changed most is first; `names` are those of the sides."""
    rows = kernel_changes(base, other)
    short = ShortNames(row.name for row in rows)
    columns: tuple[Column[KernelChange], ...] = (
        Column(
            "name",
            "operator" if base.on_cpu else "kernel",
            TEXT,
            "The kernel, by its short name.",
            fit=lambda row, cells: short.of(row.name, cells),
            flexible=True,
            least=16,
            code=True,
        ),
        Column(
            "ns.base",
            names[0],
            MICROSECONDS,
            "Its time in a step of the base.",
            priority=2,
            always=True,
        ),
        Column(
            "ns.other",
            names[1],
            MICROSECONDS,
            "Its time in a step of the other side.",
            priority=1,
            always=True,
        ),
        Column(
            "moved_ns",
            "change",
            SIGNED_MICROSECONDS,
            "How much more the other side takes.",
            sort=lambda row: abs(row.moved_ns),
            tone=lambda row: moved_tone(row.moved_ns),
        ),
        Column(
            "change",
            "change",
            TEXT_OF_NUMBER,
            "The same in per cent, or as a factor.",
            lambda row: changed_to(row.ns),
            text=lambda row: relative_change(row.ns),
            priority=3,
            always=True,
        ),
        Column(
            "count.base",
            "calls",
            NUMBER,
            "Its calls in a step of the base.",
            priority=5,
            tone="dim",
        ),
        Column(
            "count.other",
            "→ calls",
            NUMBER,
            "Its calls in a step of the other side.",
            priority=4,
            tone="dim",
        ),
    )
    return Table(
        "operators" if base.on_cpu else "kernels",
        columns,
        rows,
        search=lambda row: f"{row.name}\n{short_name(row.name)}",
    )


def speed_table(pairs: Sequence[Pair]) -> Table[Pair]:
    """One row for each pair."""
    return Table("pairs", _COLUMNS, pairs, key=lambda pair: (pair.base, pair.other))


def _interval(pair: Pair) -> str:
    return interval_text(pair.speed.interval if pair.speed is not None else None, ratio_text)


def _verdict(pair: Pair) -> str:
    return verdict_words("unknown" if pair.speed is None else pair.speed.verdict)


_COLUMNS: tuple[Column[Pair], ...] = (
    Column(
        "pair",
        "other ÷ base",
        TEXT,
        "The two sides.",
        lambda pair: f"{pair.other} ÷ {pair.base}",
    ),
    Column(
        "speed.value",
        "ratio",
        RATIO,
        "tokens/s of the other side ÷ those of the base.",
        always=True,
    ),
    Column(
        "speed.interval",
        "95 % interval",
        RATIO,
        "A bootstrap interval over the rounds.",
        text=_interval,
        always=True,
    ),
    Column(
        "speed.verdict", "verdict", TEXT, "What the interval shows.", text=_verdict, always=True
    ),
)
