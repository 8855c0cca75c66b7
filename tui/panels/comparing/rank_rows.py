"""The opened files as the ranks of one run: who waits for whom."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.formatting import duration, percent
from decodescope.analyzer.reports.per_step import communication_fraction
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.tui.model.candidates import Candidate
from decodescope.tui.panels.table_fields import Field, dim, plain, table_of
from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank, the candidate that its file is, and whether it is the straggler."""

    candidate: Candidate
    rank: RankReport
    straggles: bool


def rank_rows(found: Sequence[Candidate], report: RanksReport) -> Records | None:
    """A row for each rank; None if the file of one is no candidate."""
    of_file = {Path(one.about) / one.name: one for one in found}
    straggler = None if report.straggler is None else report.straggler.rank
    rows = []
    for rank in report.ranks:
        candidate = of_file.get(Path(rank.report.source.path))
        if candidate is None:
            return None
        rows.append(RankRow(candidate, rank, rank.rank == straggler))
    return table_of(_FIELDS, rows, _key, _text)


def _key(row: RankRow) -> Hashable:
    return row.candidate.name


def _text(row: RankRow) -> str:
    return f"rank {row.rank.rank} {row.candidate.name}"


def _chosen(row: RankRow, inks: Inks) -> Cell:
    chosen = row.candidate.chosen
    return Cell("[x]" if chosen else "[ ]", inks.key if chosen else inks.text)


def _number(row: RankRow, inks: Inks) -> Cell:
    return Cell(f"{row.rank.rank}", inks.bad if row.straggles else inks.strong)


def _last_share(row: RankRow) -> float | None:
    one = row.rank
    return one.last_entries / one.collectives if one.collectives else None


def _last(row: RankRow, inks: Inks) -> Cell:
    return Cell(percent(_last_share(row)), inks.bad if row.straggles else inks.text)


def _late_ns(row: RankRow) -> int | None:
    return None if row.rank.lateness_ns is None else row.rank.lateness_ns.p50


def _of_collectives(ns: Callable[[RankReport], int]) -> Callable[[RankRow], int | None]:
    """A time that only a rank with matched collectives has."""
    return lambda row: ns(row.rank) if row.rank.collectives else None


_caused_ns = _of_collectives(lambda rank: rank.caused_waiting_ns)
_exposed_own_ns = _of_collectives(lambda rank: rank.exposed_own_ns)
_exposed_waiting_ns = _of_collectives(lambda rank: rank.exposed_waiting_ns)

_FIELDS: tuple[Field[RankRow], ...] = (
    Field(Column("choose", "left", priority=2, least=6), lambda row: not row.candidate.chosen,
          _chosen),
    Field(Column("rank", first="up"), lambda row: row.rank.rank, _number),
    Field(Column("file", "left", first="up", priority=6, flexible=True, least=10),
          lambda row: row.candidate.name, dim(lambda row: row.candidate.name)),
    Field(Column("comm %", priority=8), lambda row: communication_fraction(row.rank.report),
          dim(lambda row: percent(communication_fraction(row.rank.report)))),
    Field(Column("own"), lambda row: row.rank.communication_own_ns,
          plain(lambda row: duration(row.rank.communication_own_ns))),
    Field(Column("waiting"), lambda row: row.rank.communication_waiting_ns,
          plain(lambda row: duration(row.rank.communication_waiting_ns))),
    Field(Column("not split", priority=10), lambda row: row.rank.communication_unsplit_ns or None,
          plain(lambda row: duration(row.rank.communication_unsplit_ns))),
    Field(Column("exposed own", priority=5), _exposed_own_ns,
          plain(lambda row: duration(_exposed_own_ns(row)))),
    Field(Column("exposed waiting", priority=4), _exposed_waiting_ns,
          plain(lambda row: duration(_exposed_waiting_ns(row)))),
    Field(Column("last in %"), _last_share, _last),
    Field(Column("late p50", priority=7), _late_ns, plain(lambda row: duration(_late_ns(row)))),
    Field(Column("others waited", priority=9), _caused_ns,
          plain(lambda row: duration(_caused_ns(row)))),
)  # fmt: skip
