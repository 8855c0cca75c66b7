"""Who waits for whom as tables for a terminal: among ranks, or the GPUs of one trace."""

from collections.abc import Iterator

from rich.console import RenderableType, RenderResult
from rich.text import Text

from decodescope.analyzer.schema.communication_report import (
    CommunicationReport,
    SkewReport,
)
from decodescope.analyzer.tables.communication_table import collectives_table
from decodescope.analyzer.tables.waiting_table import skew_table, spreads_table, waiting_table
from decodescope.analyzer.text.formatting import count
from decodescope.analyzer.views.table_parts import rich_table, section
from decodescope.analyzer.vocabulary.words import straggler_text

_MAX_COLLECTIVES, _MAX_STEPS = 12, 5


def waiting_sections(found: CommunicationReport, width: int) -> RenderResult:
    """Sections with the straggler, the transfer and wait of each rank, the collectives, and the
    skew of the steps."""
    if found.collectives:
        yield from section("Who waits for whom", *_waiting(found, width))
        yield from section("Collectives", *_collectives(found, width))
    if found.skew is not None:
        yield from section("Skew of the steps", *_skew(found.skew, found.member, width))


def _waiting(found: CommunicationReport, width: int) -> Iterator[RenderableType]:
    yield Text(straggler_text(found), style="bold" if found.straggler else "")
    if found.clock == "durations":
        yield Text("waits are found from durations: the clocks do not agree", style="dim")
    yield rich_table(waiting_table(found), width)


def _collectives(found: CommunicationReport, width: int) -> Iterator[RenderableType]:
    yield rich_table(collectives_table(found, _MAX_COLLECTIVES), width)
    if any(one.transfer_ns is None for one in found.collectives):
        yield Text(
            "without transfer and wait: not matched on another one, or an operation without a wait",
            style="dim",
        )


def _skew(skew: SkewReport, member: str, width: int) -> Iterator[RenderableType]:
    recorded = f"{count(skew.steps)} steps that {len(skew.ranks)} {member}s recorded"
    yield Text(f"{recorded}{_starters(skew, member)}")
    yield rich_table(spreads_table(skew), width)
    if any(one.start_spread_ns for one in skew.worst):
        yield rich_table(skew_table(skew, member, _MAX_STEPS), width)


def _starters(skew: SkewReport, member: str) -> str:
    """Which one starts most steps last."""
    if not skew.last_to_start:
        return ""
    rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
    return f"; {member} {rank} starts {count(steps)} of them last"
