"""Who waits for whom as tables for a terminal: among ranks, or the GPUs of one trace."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.schema.launch_report import Percentiles
from decodescope.analyzer.schema.waiting_report import (
    CollectiveReport,
    RankWaiting,
    SkewReport,
    StepSkew,
    WaitingReport,
)
from decodescope.analyzer.text.formatting import bytes_size, count, duration, percent
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    columns_table,
    section,
)
from decodescope.analyzer.vocabulary.words import member_word, straggler_text

if TYPE_CHECKING:
    from decodescope.analyzer.schema.ranks_report import RanksReport

_MAX_COLLECTIVES, _MAX_STEPS = 12, 5


def waiting_sections(found: "RanksReport | WaitingReport", width: int) -> RenderResult:
    """Sections with the straggler, the transfer and wait of each rank, the collectives, and the
    skew of the steps."""
    if found.collectives:
        yield from section("Who waits for whom", *_waiting(found, width))
        yield from section("Collectives", *_collectives(found, width))
    if found.skew is not None:
        yield from section("Skew of the steps", *_skew(found.skew, member_word(found), width))


def _p50(of: Percentiles | None) -> str:
    return duration(None if of is None else of.p50)


def _waiting(found: "RanksReport | WaitingReport", width: int) -> Iterator[RenderableType]:
    medium = width >= MEDIUM_WIDTH
    unsplit = any(one.unsplit_ns for one in found.ranks)
    columns: list[Column[RankWaiting]] = [
        Column(member_word(found), lambda one: f"{one.rank}"),
        Column("transfer", lambda one: duration(one.transfer_ns)),
        Column("wait", lambda one: duration(one.wait_ns)),
        Column("not split", lambda one: duration(one.unsplit_ns), unsplit),
        Column(
            "exposed transfer" if width >= ROOMY_WIDTH else "exp. transfer",
            lambda one: duration(one.exposed_transfer_ns),
            medium,
        ),
        Column(
            "exposed wait" if width >= ROOMY_WIDTH else "exp. wait",
            lambda one: duration(one.exposed_wait_ns),
            medium,
        ),
        Column("exposed", _exposed, not medium),
        Column("last in %", lambda one: percent(_last_share(one))),
        Column("late p50", lambda one: _p50(one.lateness_ns), width >= ROOMY_WIDTH),
    ]
    yield Text(straggler_text(found), style="bold" if found.straggler else "")
    if found.clock == "durations":
        yield Text("waits are found from durations: the clocks do not agree", style="dim")
    yield columns_table(columns, found.ranks)


def _exposed(one: RankWaiting) -> str:
    return duration(one.exposed_transfer_ns + one.exposed_wait_ns + one.exposed_unsplit_ns)


def _last_share(one: RankWaiting) -> float | None:
    return one.last_entries / one.collectives if one.collectives else None


def _collectives(found: "RanksReport | WaitingReport", width: int) -> Iterator[RenderableType]:
    roomy = width >= ROOMY_WIDTH
    sized = width >= MEDIUM_WIDTH and any(one.message_bytes for one in found.collectives)
    columns: list[Column[CollectiveReport]] = [
        Column("operation", lambda one: one.operation, text=True),
        Column("kind", lambda one: one.kind, width >= MEDIUM_WIDTH, text=True),
        Column(f"{member_word(found)}s", lambda one: f"{len(one.ranks)}"),
        Column("matched", lambda one: count(one.matched)),
        Column("unmatched", lambda one: count(one.unmatched), width >= ROOMY_WIDTH),
        Column("transfer p50", lambda one: _p50(one.transfer_ns)),
        Column("wait p50", lambda one: _p50(one.wait_ns)),
        Column(
            "p99",
            lambda one: duration(None if one.wait_ns is None else one.wait_ns.p99),
            width >= ROOMY_WIDTH,
        ),
        Column("message", lambda one: bytes_size(one.message_bytes), sized),
        Column("bus rate", lambda one: _rate(one.bus_bytes_per_s), sized and roomy),
    ]
    yield columns_table(columns, found.collectives, _MAX_COLLECTIVES, "operations")
    if any(one.transfer_ns is None for one in found.collectives):
        yield Text(
            "without transfer and wait: not matched on another one, or an operation without a wait",
            style="dim",
        )


def _rate(bytes_per_s: float | None) -> str:
    text = bytes_size(bytes_per_s)
    return text if bytes_per_s is None else f"{text}/s"


def _skew(skew: SkewReport, member: str, width: int) -> Iterator[RenderableType]:
    spreads: list[tuple[str, Percentiles | None]] = [
        ("starts", skew.start_spread_ns),
        ("ends", skew.end_spread_ns),
        ("durations", skew.duration_spread_ns),
    ]
    columns: list[Column[tuple[str, Percentiles | None]]] = [
        Column("last - first", lambda row: row[0], text=True),
        Column("p50", lambda row: _p50(row[1])),
        Column("p90", lambda row: duration(None if row[1] is None else row[1].p90)),
        Column("max", lambda row: duration(None if row[1] is None else row[1].max)),
    ]
    recorded = f"{count(skew.steps)} steps that {len(skew.ranks)} {member}s recorded"
    yield Text(f"{recorded}{_starters(skew, member)}")
    yield columns_table(columns, spreads)
    if any(one.start_spread_ns for one in skew.worst):
        steps: list[Column[StepSkew]] = [
            Column("step", lambda one: f"{one.index}"),
            Column("starts", lambda one: duration(one.start_spread_ns)),
            Column("ends", lambda one: duration(one.end_spread_ns)),
            Column("durations", lambda one: duration(one.duration_spread_ns)),
            Column("last to start", lambda one: _member(one.last_to_start, member), text=True),
            Column("to end", lambda one: _member(one.last_to_end, member), width >= MEDIUM_WIDTH,
                   text=True),
        ]  # fmt: skip
        worst = sorted(skew.worst, key=lambda one: -(one.start_spread_ns or 0))[:_MAX_STEPS]
        yield columns_table(steps, worst)


def _starters(skew: SkewReport, member: str) -> str:
    """Which one starts most steps last."""
    if not skew.last_to_start:
        return ""
    rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
    return f"; {member} {rank} starts {count(steps)} of them last"


def _member(rank: int | None, member: str) -> str:
    return "none" if rank is None else f"{member} {rank}"
