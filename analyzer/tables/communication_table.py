"""The communication of each device, the collectives of ranks or GPUs, and the ranks of one run."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter

from decodescope.analyzer.reports.step_figures import communication_fraction, idle_fraction
from decodescope.analyzer.schema.communication_report import CollectiveReport, CommunicationReport
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.analyzer.schema.report import DeviceReport, Report
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table, quotient
from decodescope.analyzer.tables.devices_table import device_column
from decodescope.analyzer.vocabulary.words import bound_words, ops_word


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
    return Table(
        "kinds",
        (
            device_column(report.devices),
            kinds.TEXT("kind", "kind", "name"),
            kinds.DURATION("ns", "time"),
            kinds.PERCENT("window_share", "of window", quotient("ns", "window_ns"), bar=12),
            kinds.PERCENT("busy_share", "of busy", quotient("ns", "busy_ns")),
        ),
        [row for device in report.devices if device.communication_ns for row in _of_device(device)],
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
    communication: CommunicationReport, most: int | None = None
) -> Table[CollectiveReport]:
    """The first `most` operations of each group, those with most time first."""
    member = communication.member
    ranks: Column[CollectiveReport] = kinds.TEXT(
        "ranks", f"{member}s", text=_runs, sort=lambda collective: len(collective.ranks)
    )
    return Table(
        "operations",
        (*_OPERATION, ranks, *_FIGURES),
        communication.collectives[:most],
        total=len(communication.collectives),
        key=attrgetter("operation", "kind", "ranks", "group"),
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


_OPERATION: tuple[Column[CollectiveReport], ...] = (
    kinds.NAME("operation", "operation"),
    kinds.TEXT("kind", "kind", priority=6, tone="dim"),
)
_FIGURES: tuple[Column[CollectiveReport], ...] = (
    kinds.COUNT("matched", "matched", priority=2),
    kinds.COUNT(
        "unmatched",
        "unmatched",
        lambda collective: collective.unmatched or None,
        priority=7,
        tone="dim",
    ),
    kinds.DURATION("total_ns", "total", priority=3),
    kinds.DURATION("transfer_ns.p50", "transfer p50"),
    kinds.DURATION("wait_ns.p50", "wait p50"),
    kinds.DURATION("wait_ns.p99", "wait p99", priority=5),
    kinds.BYTES("message_bytes", "message", priority=4),
    kinds.BYTES_PER_S("bus_bytes_per_s", "bus rate", priority=1),
)


def ranks_table(report: RanksReport, most: int | None = None) -> Table[RankReport]:
    columns = _columns(ops_word(report.ranks[0].report))
    return Table("ranks", columns, report.ranks[:most], total=len(report.ranks))


def _over_devices(figure: str) -> Callable[[RankReport], int]:
    return lambda rank: sum(getattr(device, figure) for device in rank.report.devices)


def _columns(ops: str) -> tuple[Column[RankReport], ...]:
    return (
        kinds.PLACE("rank", "rank"),
        kinds.NAME(
            "file", "file", lambda rank: rank.report.source.path.rpartition("/")[2], least=9
        ),
        kinds.COUNT("gpu_ops", ops, _over_devices("gpu_ops"), priority=3),
        kinds.DURATION("window_ns", "window", _over_devices("window_ns"), priority=2),
        kinds.DURATION("idle_ns", "idle", _over_devices("idle_ns"), priority=4),
        kinds.PERCENT("idle_share", "idle", lambda rank: idle_fraction(rank.report)),
        kinds.PERCENT(
            "communication_share", "comm", lambda rank: communication_fraction(rank.report) or None
        ),
        kinds.TEXT("answer.bound", "bound", lambda rank: bound_words(rank.report.answer.bound)),
    )
