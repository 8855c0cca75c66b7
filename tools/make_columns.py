"""Writes docs/columns.md: every column of every table, from their declarations.

Usage: python -m tools.make_columns
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decodescope.analyzer import analyze, load
from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.schema.communication_report import CommunicationReport, SkewReport
from decodescope.analyzer.schema.comparison_report import Pair, StepChanges
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.answer_table import answer_table
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
from decodescope.analyzer.tables.kernels_table import (
    kernels_table,
    launch_apis_table,
    launch_columns,
    launch_times_table,
)
from decodescope.analyzer.tables.ranges_table import table_of_lines
from decodescope.analyzer.tables.sides_table import sides_table, speed_table
from decodescope.analyzer.tables.steps_table import step_kinds_table, steps_table
from decodescope.analyzer.tables.waiting_table import skew_table, spreads_table, waiting_table

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "columns.md"
_TRACE = REPOSITORY / "tests" / "data" / "h200_graph_replays.json.gz"
_HEAD = """# Columns

What each column of each table says: in the terminal, in Markdown, CSV and HTML, and in the app,
where `?` shows those of the table that has the keys. The key is the name in CSV (with `_` for `.`),
and in JSON where JSON has the figure. A column without any figure is left out; where room is short,
the least important go first.
`python -m tools.make_columns` writes this page from the declarations in `analyzer/tables`.
"""


def columns_page() -> str:
    """The page; a table whose columns another one has too is in that one's section."""
    sections, listed = [_HEAD], list[set[tuple[str, str]]]()
    for title, columns in tables_of_all():
        meanings = {(column.key, column.help) for column in columns}
        if any(meanings <= others for others in listed):
            continue
        listed.append(meanings)
        rows = (f"- **{_title(column)}** `{column.key}`: {_help(column)}" for column in columns)
        sections.append("\n".join((f"## {title}", "", *rows)))
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _title(column: Column[Any]) -> str:
    return column.heading or "(no title)"


def _help(column: Column[Any]) -> str:
    return f"{column.help} Only in CSV." if column.csv_only else column.help


def tables_of_all() -> Iterator[tuple[str, tuple[Column[Any], ...]]]:
    """Each table by its title: all of its columns."""
    return _tables(analyze(load(_TRACE)).report)


def _tables(report: Report) -> Iterator[tuple[str, tuple[Column[Any], ...]]]:
    for title, table in {**_of_a_trace(report), **_of_ranks(), **_of_sides(report)}.items():
        yield title, table.columns
        if title == "Kernels":
            yield "Launches of a kernel", launch_columns(several_devices=True, overlapping=True)


def _of_a_trace(report: Report) -> dict[str, Table[Any]]:
    return {
        "The answer": answer_table(report.answer),
        "Kernels": kernels_table(report.kernels, attributed=True),
        "Ranges": table_of_lines((), report, folded=True),
        "Steps": steps_table(report),
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


def _of_ranks() -> dict[str, Table[Any]]:
    waiting = CommunicationReport(())
    skew = SkewReport((), 0, None, None, None, {}, ())
    return {
        "Ranks": ranks_table(RanksReport(1, (), None, ())),
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
    }


def main() -> None:
    """Write the page."""
    PAGE.write_text(columns_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
