"""The collectives of ranks or GPUs: how long they transfer, and how long others wait in them."""

from decodescope.analyzer.schema.communication_report import CollectiveReport, CommunicationReport
from decodescope.analyzer.tables.columns import (
    BYTES,
    BYTES_PER_S,
    COUNT,
    DURATION,
    TEXT,
    Column,
    Table,
)


def collectives_table(
    found: CommunicationReport, most: int | None = None
) -> Table[CollectiveReport]:
    """The first `most` operations of each group, those with most time first."""
    member = found.member
    columns: tuple[Column[CollectiveReport], ...] = (
        Column(
            "operation",
            "operation",
            TEXT,
            "What the collective does.",
            flexible=True,
            least=10,
        ),
        Column("kind", "kind", TEXT, "The library.", priority=6, tone="dim"),
        Column(
            "ranks",
            f"{member}s",
            TEXT,
            f"The {member}s of its group.",
            text=_runs,
            sort=lambda one: len(one.ranks),
        ),
        *_FIGURES,
    )
    return Table(
        "operations",
        columns,
        found.collectives[:most],
        total=len(found.collectives),
        key=lambda one: (one.operation, one.kind, one.ranks, one.group),
        search=lambda one: f"{one.operation} {one.kind} {_runs(one)}",
    )


def _runs(one: CollectiveReport) -> str:
    """Runs of consecutive ranks as "0-3"."""
    runs: list[list[int]] = []
    for rank in one.ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)


_FIGURES: tuple[Column[CollectiveReport], ...] = (
    Column("matched", "matched", COUNT, "The collectives that all of them recorded.", priority=2),
    Column(
        "unmatched",
        "unmatched",
        COUNT,
        "The ops without a partner on every one.",
        lambda one: one.unmatched or None,
        priority=7,
        tone="dim",
    ),
    Column("total_ns", "total", DURATION, "The sum of the durations of all ops.", priority=3),
    Column("transfer_ns.p50", "transfer p50", DURATION, "The transfer of one, by the median."),
    Column("wait_ns.p50", "wait p50", DURATION, "The wait in one, by the median."),
    Column(
        "wait_ns.p99",
        "wait p99",
        DURATION,
        "99 % of them wait at most that long.",
        priority=5,
    ),
    Column(
        "message_bytes",
        "message",
        BYTES,
        "The median size of a message, where kernels say it.",
        priority=4,
    ),
    Column(
        "bus_bytes_per_s",
        "bus rate",
        BYTES_PER_S,
        "The median rate of the links, as nccl-tests counts it.",
        priority=1,
    ),
)
