"""What a step consists of, for a terminal: its layers in words, its time by role."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import count, duration, percent
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
from decodescope.analyzer.views.table_parts import (
    MEDIUM_WIDTH,
    ROOMY_WIDTH,
    Column,
    columns_table,
)
from decodescope.analyzer.views.words import (
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
