"""The communication of each device, the collectives of ranks or GPUs, and the ranks of one run."""

from collections.abc import Iterator
from dataclasses import dataclass

from decodescope.analyzer.reports.step_figures import communication_fraction, idle_fraction
from decodescope.analyzer.schema.communication_report import CollectiveReport, CommunicationReport
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.analyzer.schema.report import DeviceReport, Report
from decodescope.analyzer.tables.columns import (
    BYTES,
    BYTES_PER_S,
    COUNT,
    DURATION,
    PERCENT,
    PLACE,
    TEXT,
    Column,
    Table,
)
from decodescope.analyzer.tables.devices_table import device_column
from decodescope.analyzer.vocabulary.words import bound_words


@dataclass(frozen=True, slots=True)
class CommunicationRow:
    """A kind of communication of a device, all of it, or the part in which nothing else ran."""

    device: int | str
    name: str
    ns: int
    window_ns: int
    busy_ns: int
    whole: bool


def communication_table(report: Report) -> Table[CommunicationRow]:
    """The devices that communicated."""
    rows = [
        row for device in report.devices if device.communication_ns for row in _of_device(device)
    ]
    columns: tuple[Column[CommunicationRow], ...] = (
        device_column(report.devices),
        Column("kind", "kind", TEXT, "The library, or the way.", lambda row: row.name),
        Column(
            "ns",
            "time",
            DURATION,
            "The time in which any such op ran.",
        ),
        Column(
            "window_share",
            "of window",
            PERCENT,
            "Time ÷ window.",
            lambda row: row.ns / row.window_ns if row.window_ns else None,
            bar=12,
        ),
        Column(
            "busy_share",
            "of busy",
            PERCENT,
            "Time ÷ busy.",
            lambda row: row.ns / row.busy_ns if row.busy_ns else None,
        ),
    )
    return Table(
        "kinds",
        columns,
        rows,
        key=lambda row: (row.device, row.name),
        tone=lambda row: "strong" if row.whole else "plain",
    )


def _of_device(device: DeviceReport) -> Iterator[CommunicationRow]:
    parts = device.communication
    wholes = {"all communication": device.communication_ns} if len(parts) > 1 else {}
    wholes["exposed: no other op ran"] = device.exposed_communication_ns
    for rows, whole in ((parts, False), (wholes, True)):
        for name, ns in rows.items():
            yield CommunicationRow(device.device, name, ns, device.window_ns, device.busy_ns, whole)


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
            sort=lambda collective: len(collective.ranks),
        ),
        *_FIGURES,
    )
    return Table(
        "operations",
        columns,
        found.collectives[:most],
        total=len(found.collectives),
        key=lambda collective: (
            collective.operation,
            collective.kind,
            collective.ranks,
            collective.group,
        ),
        search=lambda collective: f"{collective.operation} {collective.kind} {_runs(collective)}",
    )


def _runs(collective: CollectiveReport) -> str:
    """Runs of consecutive ranks as "0-3"."""
    runs: list[list[int]] = []
    for rank in collective.ranks:
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


_COLUMNS: tuple[Column[RankReport], ...] = (
    Column("rank", "rank", PLACE, "The rank."),
    Column(
        "file",
        "file",
        TEXT,
        "Its file.",
        lambda one: one.report.source.path.rpartition("/")[2],
        flexible=True,
        least=9,
    ),
    Column(
        "gpu_ops",
        "GPU ops",
        COUNT,
        "How many ran.",
        lambda one: sum(device.gpu_ops for device in one.report.devices),
        priority=3,
    ),
    Column(
        "window_ns",
        "window",
        DURATION,
        "From the first op's start to the last one's end, over its devices.",
        lambda one: sum(device.window_ns for device in one.report.devices),
        priority=2,
    ),
    Column(
        "idle_ns",
        "idle",
        DURATION,
        "Window minus busy, over its devices.",
        lambda one: sum(device.idle_ns for device in one.report.devices),
        priority=4,
    ),
    Column("idle_share", "idle", PERCENT, "Idle ÷ window.", lambda one: idle_fraction(one.report)),
    Column(
        "communication_share",
        "comm",
        PERCENT,
        "Communication ÷ window.",
        lambda one: communication_fraction(one.report) or None,
    ),
    Column(
        "verdict.bound",
        "bound",
        TEXT,
        "What limits its steps.",
        lambda one: bound_words(one.report.verdict.bound),
    ),
)


def ranks_table(report: RanksReport) -> Table[RankReport]:
    """One row for each rank."""
    return Table("ranks", _COLUMNS, report.ranks, key=lambda rank: rank.rank)
