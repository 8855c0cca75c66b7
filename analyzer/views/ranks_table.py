"""The reports of several ranks of one run as tables for a terminal: who waits for whom."""

from collections.abc import Iterator
from functools import partial

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, percent
from decodescope.analyzer.reports.per_step import communication_fraction, idle_fraction
from decodescope.analyzer.schema.launch_report import Percentiles
from decodescope.analyzer.schema.ranks_report import (
    RankReport,
    RanksReport,
    SkewReport,
    StepSkew,
)
from decodescope.analyzer.views.names import cut_middle
from decodescope.analyzer.views.report_table import report_table
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    Fitted,
    columns_table,
    section,
)
from decodescope.analyzer.views.waiting_table import p50_text, waiting_sections
from decodescope.analyzer.views.words import bound_words

_FILE_CELLS = 24
_MAX_STEPS = 5


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
    if report.collectives:
        yield from waiting_sections(report, width)
    if report.skew is not None:
        yield from section("Skew of the steps", *_skew(report.skew, width))
    if report.merged is not None:
        yield from section("All ranks on one clock", report_table(report.merged, by))


def _file_name(rank: RankReport, cells: int) -> str:
    return cut_middle(rank.report.source.path.rpartition("/")[2], cells)


def _skew(skew: SkewReport, width: int) -> Iterator[RenderableType]:
    spreads: list[tuple[str, Percentiles | None]] = [
        ("starts", skew.start_spread_ns),
        ("ends", skew.end_spread_ns),
        ("durations", skew.duration_spread_ns),
    ]
    columns: list[Column[tuple[str, Percentiles | None]]] = [
        Column("last - first", lambda row: row[0], text=True),
        Column("p50", lambda row: p50_text(row[1])),
        Column("p90", lambda row: duration(None if row[1] is None else row[1].p90)),
        Column("max", lambda row: duration(None if row[1] is None else row[1].max)),
    ]
    yield Text(f"{count(skew.steps)} steps that {len(skew.ranks)} ranks recorded{_starters(skew)}")
    yield columns_table(columns, spreads)
    if any(one.start_spread_ns for one in skew.worst):
        steps: list[Column[StepSkew]] = [
            Column("step", lambda one: f"{one.index}"),
            Column("starts", lambda one: duration(one.start_spread_ns)),
            Column("ends", lambda one: duration(one.end_spread_ns)),
            Column("durations", lambda one: duration(one.duration_spread_ns)),
            Column("last to start", lambda one: _rank(one.last_to_start), text=True),
            Column("to end", lambda one: _rank(one.last_to_end), width >= MEDIUM_WIDTH, text=True),
        ]
        worst = sorted(skew.worst, key=lambda one: -(one.start_spread_ns or 0))[:_MAX_STEPS]
        yield columns_table(steps, worst)


def _starters(skew: SkewReport) -> str:
    """Which rank starts most steps last."""
    if not skew.last_to_start:
        return ""
    rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
    return f"; rank {rank} starts {count(steps)} of them last"


def _rank(rank: int | None) -> str:
    return "none" if rank is None else f"rank {rank}"
