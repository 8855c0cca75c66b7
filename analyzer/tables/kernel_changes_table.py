"""The kernels of two sides, matched by name."""

from decodescope.analyzer.comparing.kernel_changes import KernelChange, kernel_changes
from decodescope.analyzer.names.names import ShortNames
from decodescope.analyzer.names.short_names import short_name
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.changes_table import (
    TEXT_OF_NUMBER,
    changed_to,
    moved_tone,
    relative_change,
)
from decodescope.analyzer.tables.columns import (
    MICROSECONDS,
    NUMBER,
    SIGNED_MICROSECONDS,
    TEXT,
    Column,
    Table,
)


def kernel_changes_table(
    base: Report, other: Report, names: tuple[str, str]
) -> Table[KernelChange]:
    """The kernel whose time a step changed most is first; `names` are those of the sides."""
    rows = kernel_changes(base, other)
    short = ShortNames(row.name for row in rows)
    columns: tuple[Column[KernelChange], ...] = (
        Column(
            "name",
            "operator" if base.on_cpu else "kernel",
            TEXT,
            "The kernel, by its short name.",
            fit=lambda row, cells: short.of(row.name, cells),
            flexible=True,
            least=16,
            code=True,
        ),
        Column(
            "ns.base",
            names[0],
            MICROSECONDS,
            "Its time in a step of the base.",
            priority=2,
            always=True,
        ),
        Column(
            "ns.other",
            names[1],
            MICROSECONDS,
            "Its time in a step of the other side.",
            priority=1,
            always=True,
        ),
        Column(
            "moved_ns",
            "change",
            SIGNED_MICROSECONDS,
            "How much more the other side takes.",
            sort=lambda row: abs(row.moved_ns),
            tone=lambda row: moved_tone(row.moved_ns),
        ),
        Column(
            "change",
            "change",
            TEXT_OF_NUMBER,
            "The same in per cent, or as a factor.",
            lambda row: changed_to(row.ns),
            text=lambda row: relative_change(row.ns),
            priority=3,
            always=True,
        ),
        Column(
            "count.base",
            "calls",
            NUMBER,
            "Its calls in a step of the base.",
            priority=5,
            tone="dim",
        ),
        Column(
            "count.other",
            "→ calls",
            NUMBER,
            "Its calls in a step of the other side.",
            priority=4,
            tone="dim",
        ),
    )
    return Table(
        "operators" if base.on_cpu else "kernels",
        columns,
        rows,
        search=lambda row: f"{row.name}\n{short_name(row.name)}",
    )
