"""The reports of several ranks of one run, or of several servers, as text for a terminal."""

from collections.abc import Collection, Iterator
from functools import partial

from msgspec.structs import replace
from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.schema.ranks_report import RanksReport, ServersReport
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.communication_table import ranks_table
from decodescope.analyzer.tables.servers_table import servers_table
from decodescope.analyzer.views.report_table import (
    SECTIONS,
    BriefReport,
    Overview,
    Section,
    report_table,
    shown_sections,
)
from decodescope.analyzer.views.table_parts import Fitted, rich_table, section
from decodescope.analyzer.views.waiting_sections import waiting_sections

_SUMMARY_ROWS, _OVERVIEW_ROWS, _MOST_ROWS = 4, 8, 1_000


def ranks_sections(ranks: RanksReport | None = None) -> tuple[Section, ...]:
    """The sections of the merged report, and one of the ranks before them."""

    def draw(report: Report, width: int, most: int) -> Iterator[RenderableType]:
        return iter(()) if ranks is None else _ranks(ranks, most, width)

    return (Section("ranks", lambda report: 1, draw), *SECTIONS)


def ranks_report_table(ranks: RanksReport, show: Collection[str] = ()) -> RenderableType:
    """Each rank in one line, the findings about them and the overview of the merged report; or the
    sections named in `show`. Ranks that are not merged have their lines, and who waits for whom."""
    if ranks.merged is None:
        return Fitted(partial(_not_merged, ranks, show))
    merged = replace(ranks.merged, communication=ranks.communication)
    if show:
        return shown_sections(merged, show, ranks_sections(ranks))
    return Overview(merged, partial(_ranks, ranks, _OVERVIEW_ROWS))


def brief_report_table(report: Report | RanksReport) -> RenderableType:
    """The first lines about a trace, or about several ranks and all of them on one clock."""
    if isinstance(report, Report):
        return BriefReport(report)
    if report.merged is None:
        return Fitted(partial(_ranks, report, _OVERVIEW_ROWS))
    merged = replace(report.merged, communication=report.communication)
    return BriefReport(merged, partial(_ranks, report, _SUMMARY_ROWS))


def _not_merged(ranks: RanksReport, show: Collection[str], width: int) -> RenderResult:
    yield from _ranks(ranks, _MOST_ROWS if show else _OVERVIEW_ROWS, width)
    yield from waiting_sections(ranks.communication, width, _MOST_ROWS if show else _OVERVIEW_ROWS)


def _ranks(ranks: RanksReport, most: int, width: int) -> Iterator[RenderableType]:
    yield Text(f"{len(ranks.ranks)} ranks", style="bold")
    yield rich_table(ranks_table(ranks, most), width)
    yield from (Text(finding.message, style="yellow") for finding in ranks.findings)
    if ranks.merged is not None:
        yield from section("All ranks on one clock")


def servers_report_table(report: ServersReport) -> RenderableType:
    """The servers in one line each, the report of each trace, and that of all on one clock."""
    return Fitted(partial(_servers, report))


def _servers(report: ServersReport, width: int) -> RenderResult:
    yield Text(report.group.name, style="bold")
    yield rich_table(servers_table(report.group), width)
    yield from (Text(finding.message, style="yellow") for finding in report.findings)
    for server in report.servers:
        if server.problem:
            yield from section(server.figures.name, Text(server.problem, style="yellow"))
        for rank in server.ranks:
            of = f" · rank {rank.rank}" if len(server.ranks) > 1 else ""
            yield from section(f"{server.figures.name}{of}", report_table(rank.report))
    if report.merged is not None:
        yield from section("All servers on one clock", report_table(report.merged))
