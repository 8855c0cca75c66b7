"""Waits and skew between the ranks of one run, or the GPUs of one trace."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from decodescope.analyzer.schema.communication_report import (
    CommunicationReport,
    RankCommunication,
    SkewReport,
    StepSkew,
)
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, columns_of, quotient
from decodescope.analyzer.tables.kernels_table import PERCENTILES, Distribution
from decodescope.analyzer.text.formatting import UNKNOWN


@dataclass(frozen=True, slots=True)
class RankFile:
    """The file of a rank, the side of a comparison that it is on ("" for none), and the share of
    its window in which it communicated."""

    key: str
    name: str
    side: str
    communication_share: float | None


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A rank or a GPU, and whether it is the straggler."""

    rank: RankCommunication
    straggles: bool
    file: RankFile | None = None


def waiting_table(
    communication: CommunicationReport,
    files: Mapping[int, RankFile] | None = None,
    most: int | None = None,
) -> Table[WaitingRow]:
    """One row for each rank, with its file where `files` has it; of more than `most` ranks, those
    that entered most collectives last."""
    straggler = communication.straggler.rank if communication.straggler is not None else None
    files, member, ranks = files or {}, communication.member, communication.ranks
    if most is not None and len(ranks) > most:
        ranks = tuple(sorted(ranks, key=attrgetter("last_entries"), reverse=True)[:most])
    rank: Column[WaitingRow] = kinds.PLACE(
        "rank", member, "rank.rank", tone=lambda row: "bad" if row.straggles else "strong"
    )
    return Table(
        f"{member}s",
        (_CHOICE, rank, *_FILE, *_TIMES),
        [WaitingRow(rank, rank.rank == straggler, files.get(rank.rank)) for rank in ranks],
        total=len(communication.ranks),
        key=lambda row: row.rank.rank if row.file is None else row.file.key,
        search=lambda row: f"rank {row.rank.rank} {row.file.name if row.file else ''}",
    )


def _matched(figure: str) -> Callable[[WaitingRow], int | None]:
    """A time that only a rank with matched collectives has."""
    return lambda row: getattr(row.rank, figure) if row.rank.collectives else None


def _side(row: WaitingRow) -> str:
    return row.file.side if row.file is not None else ""


_CHOICE: Column[WaitingRow] = kinds.TEXT(
    "chosen",
    "choose",
    "file.side",
    text=lambda row: f"[{_side(row) or ' '}]",
    sort=_side,
    first="down",
    priority=2,
    least=6,
    tone=lambda row: "key" if _side(row) else "plain",
)
_FILE: tuple[Column[WaitingRow], ...] = (
    kinds.NAME("file", "file", "file.name", priority=6, tone="dim"),
    kinds.PERCENT(
        "communication_share", "comm", "file.communication_share", priority=8, tone="dim"
    ),
)
_TIMES: tuple[Column[WaitingRow], ...] = columns_of(
    "rank",
    kinds.DURATION("transfer_ns", "transfer"),
    kinds.DURATION("wait_ns", "wait"),
    kinds.DURATION("unsplit_ns", "not split", lambda row: row.rank.unsplit_ns or None, priority=10),
    kinds.DURATION(
        "exposed_transfer_ns", "exposed transfer", _matched("exposed_transfer_ns"), priority=5
    ),
    kinds.DURATION("exposed_wait_ns", "exposed wait", _matched("exposed_wait_ns"), priority=4),
    kinds.PERCENT(
        "last_share",
        "last in",
        quotient("rank.last_entries", "rank.collectives"),
        tone=lambda row: "bad" if row.straggles else "plain",
    ),
    kinds.DURATION("lateness_ns.p50", "late p50", priority=7),
    kinds.DURATION("caused_wait_ns", "others waited", _matched("caused_wait_ns"), priority=9),
)


def spreads_table(skew: SkewReport) -> Table[Distribution]:
    """The spread of starts, ends and durations over the steps."""
    rows = (
        Distribution("starts", skew.start_spread_ns),
        Distribution("ends", skew.end_spread_ns),
        Distribution("durations", skew.duration_spread_ns),
    )
    return Table("spreads", (kinds.TEXT("name", "last - first"), *PERCENTILES), rows)


def skew_table(skew: SkewReport, member: str, most: int | None = None) -> Table[StepSkew]:
    """The first `most` of the steps with the widest starts; `member` is a rank or a GPU."""

    def named(rank: int | None) -> str:
        return UNKNOWN if rank is None else f"{member} {rank}"

    return Table(
        "steps",
        (
            *_SKEW,
            kinds.NAME(
                "last_to_start",
                "last to start",
                text=lambda step: named(step.last_to_start),
                least=8,
                priority=1,
            ),
            kinds.TEXT(
                "last_to_end", "last to end", text=lambda step: named(step.last_to_end), priority=4
            ),
        ),
        sorted(skew.worst, key=_widest)[:most],
        key=attrgetter("index"),
        search=lambda step: f"step {step.index} last {step.last_to_start} {step.last_to_end}",
    )


def _widest(step: StepSkew) -> tuple[int, int, int]:
    return -(step.start_spread_ns or 0), -step.duration_spread_ns, step.index


_SKEW: tuple[Column[StepSkew], ...] = (
    kinds.PLACE("index", "step"),
    kinds.DURATION("start_spread_ns", "starts"),
    kinds.DURATION("end_spread_ns", "ends", priority=2),
    kinds.DURATION("duration_spread_ns", "durations", priority=3),
)
