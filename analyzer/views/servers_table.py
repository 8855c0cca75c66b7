"""One window of several servers as text for a terminal."""

from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.schema.servers_report import ServersReport
from decodescope.analyzer.tables.servers_table import servers_table
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.views.table_parts import Fitted, rich_table, section


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
