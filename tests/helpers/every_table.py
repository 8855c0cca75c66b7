"""Every column of every table of an output, from their declarations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decodescope.analyzer import analyze, load
from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.schema.cache_report import CacheReport
from decodescope.analyzer.schema.communication_report import CommunicationReport, SkewReport
from decodescope.analyzer.schema.comparison_report import Pair, StepChanges
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport, ServerFigures
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.tables.cache_table import cache_table
from decodescope.analyzer.tables.captures_table import captures_table
from decodescope.analyzer.tables.changes_table import (
    kernel_changes_table,
    parts_table,
    range_changes_table,
)
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.tables.communication_table import (
    collectives_table,
    communication_table,
    ranks_table,
)
from decodescope.analyzer.tables.devices_table import devices_table, streams_table
from decodescope.analyzer.tables.gaps_table import (
    gap_classes_table,
    gap_columns,
    gap_groups_table,
    interruptions_table,
    stream_gaps_table,
)
from decodescope.analyzer.tables.gate_table import gate_table, samples_table
from decodescope.analyzer.tables.kernels_table import (
    kernels_table,
    launch_apis_table,
    launch_columns,
    launch_times_table,
)
from decodescope.analyzer.tables.ranges_table import table_of_lines
from decodescope.analyzer.tables.servers_table import servers_table
from decodescope.analyzer.tables.sides_table import sides_table, speed_table
from decodescope.analyzer.tables.steps_table import step_kinds_table, steps_table
from decodescope.analyzer.tables.waiting_table import skew_table, spreads_table, waiting_table

REPOSITORY = Path(__file__).resolve().parents[2]
_TRACE = REPOSITORY / "tests" / "data" / "h200_graph_replays.json.gz"


def tables_of_all() -> Iterator[tuple[str, tuple[Column[Any], ...]]]:
    """Each table by its title: all of its columns."""
    return _tables(analyze(load(_TRACE)).report)


def _tables(report: Report) -> Iterator[tuple[str, tuple[Column[Any], ...]]]:
    for title, table in {**_of_a_trace(report), **_of_ranks(report), **_of_sides(report)}.items():
        yield title, table.columns
        if title == "Kernels":
            yield "Launches of a kernel", launch_columns(several_devices=True, overlapping=True)


def _of_a_trace(report: Report) -> dict[str, Table[Any]]:
    return {
        "The answer": answer_table(report.answer),
        "Kernels": kernels_table(report.kernels, attributed=True),
        "Ranges": table_of_lines((), report, folded=True),
        "Steps": steps_table(report, limits_ns={0: 0}),
        "Kinds of steps": step_kinds_table(report, 0),
        "Devices": devices_table(report),
        "Streams": streams_table(report),
        "Idle time by class": gap_classes_table(report),
        "Idle time by stream and class": stream_gaps_table(report),
        "Groups of gaps": gap_groups_table(report),
        "Gaps": Table("gaps", gap_columns(report.devices, ShortNames(()), str), ()),
        "Interruptions": interruptions_table(report),
        "Communication": communication_table(report),
        "Where traces come from": captures_table({"": report}),
        "Times of launch calls": launch_times_table(report.launches),
        "Functions of launch calls": launch_apis_table(report.launches),
    }


def _of_ranks(report: Report) -> dict[str, Table[Any]]:
    waiting = CommunicationReport(())
    skew = SkewReport((), 0, None, None, None, {}, ())
    return {
        "Ranks": ranks_table(RanksReport(1, (RankReport(0, report),), None, ())),
        "Who waits for whom": waiting_table(waiting),
        "Collectives": collectives_table(waiting),
        "Skew of the steps": spreads_table(skew),
        "Steps with the widest skew": skew_table(skew, "rank"),
    }


def _of_sides(report: Report) -> dict[str, Table[Any]]:
    pair = Pair("A", "B", None, ())
    names = (pair.base, pair.other)
    return {
        "Variants, or two traces": sides_table(()),
        "Ratios of tokens/s": speed_table((pair,)),
        "Step by part": parts_table(StepChanges(None, None, ()), names),
        "Changes of kernels": kernel_changes_table(report, report, names),
        "Changes of ranges": range_changes_table(pair, names),
        "Changes of ranges where ops overlap": range_changes_table(
            Pair("A", "B", None, (), overlapping=True), names
        ),
        "A gate": gate_table(()),
        "A baseline": samples_table(()),
        "Servers": servers_table(ServerFigures()),
        "The cache": cache_table(CacheReport("", 0, 0, ())),
    }
