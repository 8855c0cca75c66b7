"""Where one step takes longer than another, by role and by layer, as tables of text."""

from collections.abc import Sequence

from decodescope.analyzer.schema.comparison_report import Pair, StepChanges, StepPartChange
from decodescope.analyzer.tables.changes_table import step_parts_table
from decodescope.analyzer.views.pair_sections import Section
from decodescope.analyzer.vocabulary.words import STEP_NOTE

_LAYER_ROWS = 12


def step_change_sections(pair: Pair) -> tuple[Section, ...]:
    """The roles, then the layers that changed most; both end with the step that they add up to."""
    step = pair.step
    if step is None:
        return ()
    sections = [_section(pair, step, "role", step.roles, STEP_NOTE)]
    if step.layers:
        means = any(row.kind == "more_layers" for row in step.layers)
        note = "a number of layers stands for their mean" if means else ""
        sections.append(_section(pair, step, "layer", _shortened(step.layers), note))
    return tuple(sections)


def _shortened(rows: Sequence[StepPartChange]) -> Sequence[StepPartChange]:
    """The first rows, and one that stands for all others."""
    if len(rows) <= _LAYER_ROWS + 1:
        return rows
    rest = rows[_LAYER_ROWS:]
    together = StepPartChange(
        part=f"{len(rest)} more, together",
        kind="layer",
        base_ns=sum(row.base_ns or 0 for row in rest),
        other_ns=sum(row.other_ns or 0 for row in rest),
        change_ns=sum(row.change_ns for row in rest),
        base_ops=sum(row.base_ops or 0 for row in rest),
        other_ops=sum(row.other_ops or 0 for row in rest),
    )
    return (*rows[:_LAYER_ROWS], together)


def _section(
    pair: Pair, step: StepChanges, what: str, rows: Sequence[StepPartChange], note: str
) -> Section:
    whole = StepPartChange("step", "role", step.base_ns, step.other_ns, step.change_ns)
    return Section(
        f"By {what}, per step: {pair.base} to {pair.other}",
        step_parts_table((*rows, whole), what, (pair.base, pair.other)),
        note=note,
    )
