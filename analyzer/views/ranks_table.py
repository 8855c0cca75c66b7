"""Several ranks' reports for a terminal: a line for each rank, then the merged report."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, percent, plain_text
from decodescope.analyzer.reports.per_step import idle_fraction
from decodescope.analyzer.schema.rank_report import RankReport, RanksReport
from decodescope.analyzer.views.names import cut_middle
from decodescope.analyzer.views.table import report_table

_FILE_CELLS = 24


def ranks_table(report: RanksReport, by: str = "kernel") -> RenderableType:
    """Each rank in one line, what was found about them, and what the merged trace says."""
    parts: list[RenderableType] = [Text(f"{len(report.ranks)} ranks", style="bold"), _ranks(report)]
    parts += [Text(finding.message, style="yellow") for finding in report.findings]
    if report.merged is not None:
        parts += ["", Text("All ranks on one clock", style="bold"), report_table(report.merged, by)]
    return Group(*parts)


def _ranks(report: RanksReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("rank", "file", "GPU ops", "window", "idle", "idle %", "bound"):
        justify = "left" if column in ("file", "bound") else "right"
        table.add_column(column, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for rank in report.ranks:
        table.add_row(*_row(rank))
    return table


def _row(rank: RankReport) -> tuple[str, ...]:
    report = rank.report
    devices = report.devices
    file = plain_text(report.source.path.rpartition("/")[2])
    return (
        f"{rank.rank}",
        cut_middle(file, _FILE_CELLS),
        count(sum(device.gpu_ops for device in devices)),
        duration(sum(device.window_ns for device in devices)),
        duration(sum(device.idle_ns for device in devices)),
        percent(idle_fraction(report)),
        report.verdict.bound,
    )
