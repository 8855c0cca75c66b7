"""What a step consists of, for a terminal: its layers in words, its time by role."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.step_cost import StepCost
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
from decodescope.analyzer.text.formatting import bytes_size, count, duration, percent
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    columns_table,
)
from decodescope.analyzer.vocabulary.words import (
    ROLE_KNOWN_BY,
    layers_words,
    role_limit,
    role_of_limit,
    role_rate,
)

_BAR_CELLS = 24


def layers_line(structure: StructureReport) -> Text:
    """The layers in a sentence."""
    return Text(layers_words(structure))


def cost_line(cost: StepCost) -> Text:
    """What the step must read and compute, in a sentence."""
    sizes = [f"{count(cost.batch)} requests" if cost.batch != 1 else "1 request"]
    sizes += [f"{count(cost.kv_tokens)} KV positions"] if cost.kv_tokens is not None else []
    formats = f" ({plain_line(cost.weights)})" if cost.weights else ""
    devices = f", 1 of {cost.tensor_parallel} devices" if cost.tensor_parallel > 1 else ""
    peak = cost.peak_bytes_per_s
    at = f", {bytes_size(peak)}/s at most" if peak else ", at an unknown bandwidth"
    return Text(
        f"{plain_line(cost.model)}{formats}: {', '.join(sizes)}{devices}; a step reads "
        f"{bytes_size(cost.bytes_per_step)}{at}",
        style="dim",
    )


def roles_table(roles: tuple[RoleReport, ...], width: int) -> Table:
    """One row for each role; the columns of bytes only where they are known. Narrow tables omit
    how the role is known and, beside rates, the ops and the limit; roomy ones have a bar."""
    known, medium = any(row.bytes is not None for row in roles), width >= MEDIUM_WIDTH
    columns: list[Column[RoleReport]] = [
        Column("role", lambda row: row.role, text=True),
        Column("ops", lambda row: count(row.ops_per_step), medium or not known),
        Column("time a step", lambda row: duration(row.ns_per_step)),
        Column("share %", lambda row: percent(row.share)),
        Column("GB/s", role_rate, known),
        Column("limit", role_limit, known and medium),
        Column("of limit %", role_of_limit, known),
        Column("by", lambda row: ROLE_KNOWN_BY[row.confidence], medium, text=True),
        Column("", _bar, width >= ROOMY_WIDTH, text=True),
    ]
    return columns_table(columns, roles)


def _bar(row: RoleReport) -> str:
    return "█" * round(min(max(row.share, 0.0), 1.0) * _BAR_CELLS)
