"""Who waits for whom: the ranks of one run with their files, or the GPUs of one trace."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.reports.per_step import communication_fraction
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.waiting_report import RankWaiting, WaitingReport
from decodescope.analyzer.text.formatting import duration, percent
from decodescope.tui.model.candidates import Candidate
from decodescope.tui.panels.table_fields import Field, dim, plain, table_of
from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks


@dataclass(frozen=True, slots=True)
class RankRow:
    """A rank or a GPU, and whether it is the straggler; of a rank also the candidate that its file
    is, and its share of communication."""

    rank: RankWaiting
    straggles: bool
    candidate: Candidate | None = None
    share: float | None = None


def rank_rows(found: Sequence[Candidate], report: RanksReport) -> Records | None:
    """A row for each rank; None if the file of one is no candidate."""
    of_file = {Path(one.about) / one.name: one for one in found}
    files = [of_file.get(Path(one.report.source.path)) for one in report.ranks]
    if None in files:
        return None
    rows = [
        RankRow(one, _straggles(one, report), file, communication_fraction(one.report))
        for one, file in zip(report.ranks, files, strict=True)
    ]
    return table_of(_fields("rank"), rows, _key_of_file, _text)


def gpu_rows(report: WaitingReport) -> Records:
    """A row for each GPU of one trace."""
    rows = [RankRow(one, _straggles(one, report)) for one in report.ranks]
    return table_of(_fields("GPU"), rows, _key, _text)


def _straggles(one: RankWaiting, report: RanksReport | WaitingReport) -> bool:
    return report.straggler is not None and report.straggler.rank == one.rank


def _key(row: RankRow) -> Hashable:
    return row.rank.rank


def _key_of_file(row: RankRow) -> Hashable:
    return _name(row)


def _name(row: RankRow) -> str | None:
    return None if row.candidate is None else row.candidate.name


def _text(row: RankRow) -> str:
    return f"rank {row.rank.rank} {_name(row) or ''}"


def _chosen(row: RankRow) -> bool | None:
    return None if row.candidate is None else row.candidate.chosen


def _box(row: RankRow, inks: Inks) -> Cell:
    return Cell("[x]" if _chosen(row) else "[ ]", inks.key if _chosen(row) else inks.text)


def _number(row: RankRow, inks: Inks) -> Cell:
    return Cell(f"{row.rank.rank}", inks.bad if row.straggles else inks.strong)


def _last_share(row: RankRow) -> float | None:
    one = row.rank
    return one.last_entries / one.collectives if one.collectives else None


def _last(row: RankRow, inks: Inks) -> Cell:
    return Cell(percent(_last_share(row)), inks.bad if row.straggles else inks.text)


def _late_ns(row: RankRow) -> int | None:
    return None if row.rank.lateness_ns is None else row.rank.lateness_ns.p50


def _of_collectives(ns: Callable[[RankWaiting], int]) -> Callable[[RankRow], int | None]:
    """A time that only a rank with matched collectives has."""
    return lambda row: ns(row.rank) if row.rank.collectives else None


_caused_ns = _of_collectives(lambda rank: rank.caused_wait_ns)
_exposed_transfer_ns = _of_collectives(lambda rank: rank.exposed_transfer_ns)
_exposed_wait_ns = _of_collectives(lambda rank: rank.exposed_wait_ns)


def _fields(member: str) -> tuple[Field[RankRow], ...]:
    return (
        Field(Column("choose", "left", priority=2, least=6),
              lambda row: None if row.candidate is None else not row.candidate.chosen, _box),
        Field(Column(member, first="up"), lambda row: row.rank.rank, _number),
        Field(Column("file", "left", first="up", priority=6, flexible=True, least=10), _name,
              dim(lambda row: _name(row) or "")),
        Field(Column("comm %", priority=8), lambda row: row.share,
              dim(lambda row: percent(row.share))),
        Field(Column("transfer"), lambda row: row.rank.transfer_ns,
              plain(lambda row: duration(row.rank.transfer_ns))),
        Field(Column("wait"), lambda row: row.rank.wait_ns,
              plain(lambda row: duration(row.rank.wait_ns))),
        Field(Column("not split", priority=10),
              lambda row: row.rank.unsplit_ns or None,
              plain(lambda row: duration(row.rank.unsplit_ns))),
        Field(Column("exposed transfer", priority=5), _exposed_transfer_ns,
              plain(lambda row: duration(_exposed_transfer_ns(row)))),
        Field(Column("exposed wait", priority=4), _exposed_wait_ns,
              plain(lambda row: duration(_exposed_wait_ns(row)))),
        Field(Column("last in %"), _last_share, _last),
        Field(Column("late p50", priority=7), _late_ns,
              plain(lambda row: duration(_late_ns(row)))),
        Field(Column("others waited", priority=9), _caused_ns,
              plain(lambda row: duration(_caused_ns(row)))),
    )  # fmt: skip
