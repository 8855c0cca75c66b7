"""The ranks of one run, each with what its own report says."""

from decodescope.analyzer.reports.step_figures import communication_fraction, idle_fraction
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.analyzer.tables.columns import COUNT, DURATION, PERCENT, PLACE, TEXT, Column, Table
from decodescope.analyzer.vocabulary.words import bound_words

_COLUMNS: tuple[Column[RankReport], ...] = (
    Column("rank", "rank", PLACE, "The rank."),
    Column(
        "file",
        "file",
        TEXT,
        "Its file.",
        lambda one: one.report.source.path.rpartition("/")[2],
        flexible=True,
        least=9,
    ),
    Column(
        "gpu_ops",
        "GPU ops",
        COUNT,
        "How many ran.",
        lambda one: sum(device.gpu_ops for device in one.report.devices),
        priority=3,
    ),
    Column(
        "window_ns",
        "window",
        DURATION,
        "From the first op's start to the last one's end, over its devices.",
        lambda one: sum(device.window_ns for device in one.report.devices),
        priority=2,
    ),
    Column(
        "idle_ns",
        "idle",
        DURATION,
        "Window minus busy, over its devices.",
        lambda one: sum(device.idle_ns for device in one.report.devices),
        priority=4,
    ),
    Column("idle_share", "idle", PERCENT, "Idle ÷ window.", lambda one: idle_fraction(one.report)),
    Column(
        "communication_share",
        "comm",
        PERCENT,
        "Communication ÷ window.",
        lambda one: communication_fraction(one.report) or None,
    ),
    Column(
        "verdict.bound",
        "bound",
        TEXT,
        "What limits its steps.",
        lambda one: bound_words(one.report.verdict.bound),
    ),
)


def ranks_table(report: RanksReport) -> Table[RankReport]:
    """One row for each rank."""
    return Table("ranks", _COLUMNS, report.ranks, key=lambda one: one.rank)
