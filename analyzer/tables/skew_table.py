"""How far apart ranks or GPUs are in the same step."""

from dataclasses import dataclass

from decodescope.analyzer.schema.communication_report import SkewReport, StepSkew
from decodescope.analyzer.schema.kernel_report import Percentiles
from decodescope.analyzer.tables.columns import DURATION, PLACE, TEXT, Column, Table


@dataclass(frozen=True, slots=True)
class SpreadRow:
    """The distribution of one spread over all steps; None without a common clock."""

    name: str
    spread: Percentiles | None


def spreads_table(skew: SkewReport) -> Table[SpreadRow]:
    """The spread of starts, ends and durations."""
    columns: tuple[Column[SpreadRow], ...] = (
        Column("name", "last - first", TEXT, "Of starts and ends; of durations, max - min."),
        Column("spread.p50", "p50", DURATION, "The median over the steps."),
        Column("spread.p90", "p90", DURATION, "90 % of the steps are at most that far apart."),
        Column("spread.p99", "p99", DURATION, "99 % of the steps are at most that far apart."),
        Column("spread.max", "max", DURATION, "The widest."),
    )
    rows = (
        SpreadRow("starts", skew.start_spread_ns),
        SpreadRow("ends", skew.end_spread_ns),
        SpreadRow("durations", skew.duration_spread_ns),
    )
    return Table("spreads", columns, rows)


def skew_table(skew: SkewReport, member: str, most: int | None = None) -> Table[StepSkew]:
    """The first `most` of the steps with the widest starts; `member` is a rank or a GPU."""

    def named(rank: int | None) -> str:
        return TEXT.text(None if rank is None else f"{member} {rank}")

    columns: tuple[Column[StepSkew], ...] = (
        Column("index", "step", PLACE, "The step.", first="up"),
        Column("start_spread_ns", "starts", DURATION, "The last start minus the first."),
        Column("end_spread_ns", "ends", DURATION, "The last end minus the first.", priority=2),
        Column(
            "duration_spread_ns",
            "durations",
            DURATION,
            "The longest span minus the shortest.",
            priority=3,
        ),
        Column(
            "last_to_start",
            "last to start",
            TEXT,
            "Which one starts it last.",
            text=lambda one: named(one.last_to_start),
            flexible=True,
            least=8,
            priority=1,
        ),
        Column(
            "last_to_end",
            "last to end",
            TEXT,
            "Which one ends it last.",
            text=lambda one: named(one.last_to_end),
            priority=4,
        ),
    )
    return Table(
        "steps",
        columns,
        sorted(skew.worst, key=_widest)[:most],
        key=lambda one: one.index,
        search=lambda one: f"step {one.index} last {one.last_to_start} {one.last_to_end}",
    )


def _widest(one: StepSkew) -> tuple[int, int, int]:
    return -(one.start_spread_ns or 0), -one.duration_spread_ns, one.index
