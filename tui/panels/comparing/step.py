"""The step of two sides by role or by layer."""

from collections.abc import Hashable

from decodescope.analyzer.schema.comparison_report import Change, Pair
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.schema.step_change_report import StepPartChange
from decodescope.analyzer.text.formatting import count
from decodescope.analyzer.vocabulary.words import (
    change_text,
    exact_change,
    exact_microseconds,
    step_part_words,
)
from decodescope.tui.commands import Command
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.changes import ChangesTable, changed_to, moved_style
from decodescope.tui.panels.sheet import Brush
from decodescope.tui.panels.table_rows import Cell, Column, Records
from decodescope.tui.style.palette import Inks


class ComparisonStepPanel(ChangesTable):
    """The parts of the step that stands for each side; they add up to it. The part whose time
    changed most is first."""

    NAME = "ab_step"
    WHAT = "roles"
    COMMANDS = (
        *ChangesTable.COMMANDS,
        Command("layers", "l", "Roles or layers",
                "The time of the step by role, or by layer where both sides have layers",
                "layers", 3),
    )  # fmt: skip

    def __init__(self, brush: Brush, view: View, moment: Moment) -> None:
        self._by_layer = False
        self._note = ""
        self._seen: tuple[View, Moment] = (view, moment)
        super().__init__(brush, view, moment)

    def source(self, view: View, moment: Moment) -> object:
        self._seen = (view, moment)
        return super().source(view, moment), self._by_layer

    def changes(
        self, pair: Pair, windows: tuple[Report, Report], names: tuple[str, str]
    ) -> Records:
        step = pair.step
        layers = step.layers if step else ()
        by_layer = self._by_layer and bool(layers)
        rows = layers if by_layer else step.roles if step else ()
        if step is not None:
            hint = f" · l: by {'role' if by_layer else 'layer'}" if layers else ""
            self._note = f"step {exact_change(step.change_ns)} µs{hint}"
        columns = (
            Column("layer" if by_layer else "role", "left", first="up", flexible=True, least=16),
            Column(f"{names[0]} µs", priority=2),
            Column(f"{names[1]} µs", priority=1),
            Column("change µs"),
            Column("change", priority=3),
            Column("ops", priority=5),
            Column("→ ops", priority=4),
        )
        return Records(columns, rows, _key, _cells, _values, step_part_words)

    def note(self) -> str:
        return self._note

    def action_layers(self) -> None:
        """Show the step by layer, or by role again."""
        self._by_layer = not self._by_layer
        self.show(*self._seen)


def _key(row: StepPartChange) -> Hashable:
    return row.kind, row.part


def _cells(row: StepPartChange, inks: Inks, room: int) -> tuple[Cell, ...]:
    return (
        Cell(step_part_words(row), inks.text if row.base_ops or row.other_ops else inks.dim),
        Cell(exact_microseconds(row.base_ns)),
        Cell(exact_microseconds(row.other_ns)),
        Cell(exact_change(row.change_ns), moved_style(row.change_ns, inks)),
        Cell(_words(row)),
        Cell(count(row.base_ops), inks.dim),
        Cell(count(row.other_ops), inks.dim),
    )


def _words(row: StepPartChange) -> str:
    if row.base_ns is None:
        return "new"
    return "gone" if row.other_ns is None else change_text(Change(row.base_ns, row.other_ns))


def _values(row: StepPartChange) -> tuple[object, ...]:
    return (step_part_words(row), row.base_ns, row.other_ns, abs(row.change_ns),
            changed_to(Change(row.base_ns, row.other_ns)), row.base_ops, row.other_ops)  # fmt: skip
