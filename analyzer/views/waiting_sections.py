"""Who waits for whom among ranks or GPUs, as sections for a terminal."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from decodescope.analyzer.schema.communication_report import CommunicationReport, SkewReport
from decodescope.analyzer.tables.communication_table import collectives_table
from decodescope.analyzer.tables.waiting_table import skew_table, spreads_table, waiting_table
from decodescope.analyzer.text.formatting import count, counted
from decodescope.analyzer.views.table_parts import rich_table, section
from decodescope.analyzer.vocabulary.words import straggler_text


def waiting_sections(
    communication: CommunicationReport, width: int, most: int
) -> Iterator[RenderableType]:
    """Sections with the straggler, the transfer and wait of each rank, the collectives, and the
    skew of the steps."""
    if communication.collectives:
        yield from section("Who waits for whom", *_waiting(communication, width, most))
        yield from section("Collectives", *_collectives(communication, width, most))
    if communication.skew is not None:
        yield from section(
            "Skew of the steps", *_skew(communication.skew, communication.member, width, most)
        )


def _waiting(communication: CommunicationReport, width: int, most: int) -> Iterator[RenderableType]:
    yield Text(straggler_text(communication), style="bold" if communication.straggler else "")
    if communication.clock == "durations":
        yield Text("waits are found from durations: the clocks do not agree", style="dim")
    yield rich_table(waiting_table(communication, most=most), width)


def _collectives(
    communication: CommunicationReport, width: int, most: int
) -> Iterator[RenderableType]:
    yield rich_table(collectives_table(communication, most), width)
    if any(collective.transfer_ns is None for collective in communication.collectives):
        yield Text(
            "without transfer and wait: not matched on another one, or an operation without a wait",
            style="dim",
        )


def _skew(skew: SkewReport, member: str, width: int, most: int) -> Iterator[RenderableType]:
    recorded = f"{counted(skew.steps, 'step')} that {len(skew.ranks)} {member}s recorded"
    yield Text(f"{recorded}{_starters(skew, member)}")
    yield rich_table(spreads_table(skew), width)
    if any(step.start_spread_ns for step in skew.worst):
        yield rich_table(skew_table(skew, member, most), width)


def _starters(skew: SkewReport, member: str) -> str:
    """The member that starts most steps last."""
    if not skew.last_to_start:
        return ""
    rank, steps = max(skew.last_to_start.items(), key=lambda item: (item[1], -item[0]))
    return f"; {member} {rank} starts {count(steps)} of them last"
