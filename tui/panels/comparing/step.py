"""The step of two sides by role or by layer."""

from decodescope.analyzer.schema.comparison_report import Pair, StepPartChange
from decodescope.analyzer.schema.report import Report
from decodescope.analyzer.tables.changes_table import step_parts_table
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.vocabulary.words import exact_change
from decodescope.tui.commands import Command
from decodescope.tui.model.view import Moment, View
from decodescope.tui.panels.comparing.changes import ChangesTable
from decodescope.tui.panels.sheet import Brush


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
    ) -> Table[StepPartChange]:
        step = pair.step
        layers = step.layers if step else ()
        by_layer = self._by_layer and bool(layers)
        rows = layers if by_layer else step.roles if step else ()
        if step is not None:
            hint = f" · l: by {'role' if by_layer else 'layer'}" if layers else ""
            self._note = f"step {exact_change(step.change_ns)} µs{hint}"
        return step_parts_table(rows, "layer" if by_layer else "role", names)

    def note(self) -> str:
        return self._note

    def action_layers(self) -> None:
        """Show the step by layer, or by role again."""
        self._by_layer = not self._by_layer
        self.show(*self._seen)
