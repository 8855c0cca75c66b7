"""The reports of several ranks of one run as tables for a terminal: who waits for whom."""

from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.names.names import cut_middle
from decodescope.analyzer.reports.per_step import communication_fraction, idle_fraction
from decodescope.analyzer.schema.ranks_report import (
    RankReport,
    RanksReport,
)
from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    Fitted,
    columns_table,
    section,
)
from decodescope.analyzer.views.waiting_table import waiting_sections
from decodescope.analyzer.vocabulary.words import bound_words

_FILE_CELLS = 24


def ranks_table(report: RanksReport, by: str = "kernel") -> RenderableType:
    """Each rank in one line, the findings about them, who waits for whom, the skew of the steps,
    and the report of the merged trace."""
    return Fitted(partial(_parts, report, by))


def _parts(report: RanksReport, by: str, width: int) -> RenderResult:
    medium, roomy = width >= MEDIUM_WIDTH, width >= ROOMY_WIDTH
    cells = min(_FILE_CELLS, width - (78 if roomy else 60 if medium else 51))
    shared = any(communication_fraction(one.report) for one in report.ranks)
    columns: list[Column[RankReport]] = [
        Column("rank", lambda one: f"{one.rank}"),
        Column("file", lambda one: _file_name(one, cells), text=True),
        Column("GPU ops", lambda one: count(sum(d.gpu_ops for d in one.report.devices)), roomy),
        Column(
            "window", lambda one: duration(sum(d.window_ns for d in one.report.devices)), medium
        ),
        Column("idle", lambda one: duration(sum(d.idle_ns for d in one.report.devices)), roomy),
        Column("idle %", lambda one: percent(idle_fraction(one.report))),
        Column("comm %", lambda one: percent(communication_fraction(one.report)), shared),
        Column("bound", lambda one: bound_words(one.report.verdict.bound), text=True),
    ]
    yield Text(f"{len(report.ranks)} ranks", style="bold")
    yield columns_table(columns, report.ranks)
    yield from (Text(finding.message, style="yellow") for finding in report.findings)
    yield from waiting_sections(report.communication, width)
    if report.merged is not None:
        yield from section("All ranks on one clock", report_table(report.merged, by))


def _file_name(rank: RankReport, cells: int) -> str:
    return cut_middle(rank.report.source.path.rpartition("/")[2], cells)
