"""A comparison or a diff as titles, tables and notes of text, for a terminal or a pull request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from decodescope.analyzer.comparing.diff import BASE, OTHER, has_unprofiled_times
from decodescope.analyzer.comparing.range_rows import most_changed_ranges
from decodescope.analyzer.comparing.sides import Side, sides_of
from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate, Pair
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.tables.changes_table import (
    changes_table,
    range_changes_table,
    whole_step_table,
)
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.sides_table import (
    accuracy_notes,
    accuracy_table,
    rates_table,
    speed_table,
    standings_table,
)
from decodescope.analyzer.tables.waterfall_table import waterfall_table
from decodescope.analyzer.text.formatting import sampling_words, weights_note
from decodescope.analyzer.vocabulary.words import STANDINGS_NOTE, STEP_NOTE, device_words

_UNPROFILED_STEP, _PROFILED_STEP = "step, unprofiled", "step, profiled"
_MOST_LAYERS = 12


@dataclass(frozen=True, slots=True)
class Section:
    """One table with its title, and a note below it."""

    title: str
    table: Table[Any]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything an output shows, in its order: the title with the note on its weights, facts,
    tables, findings and the gate."""

    title: str
    weights_note: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    findings: tuple[Finding, ...]
    gate: Gate | None

    @property
    def gate_sentence(self) -> str:
        """Whether the gate failed and what it allows; empty without a gate."""
        if self.gate is None:
            return ""
        outcome = "failed" if self.gate.failures else "passed"
        allowed = f"{self.gate.allowed_percent:g} % slower than {self.gate.baseline}"
        return f"Regression gate {outcome}: up to {allowed} is allowed"

    @property
    def failures(self) -> tuple[str, ...]:
        return self.gate.failures if self.gate else ()


def summary_of(compared: Comparison | Diff) -> Summary:
    """Everything of a comparison or a diff that fits tables."""
    return _diff_summary(compared) if isinstance(compared, Diff) else _comparison_summary(compared)


def _comparison_summary(comparison: Comparison) -> Summary:
    run, result, sides = comparison.runs[0], comparison.comparison, sides_of(comparison)
    untimed = [variant.variant for variant in result.variants if variant.interpreted]
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    ranked = sides if result.standings else ()
    return Summary(
        title=run.model,
        weights_note=weights_note(run.weights),
        facts=(
            f"{run.dtype} · batch {run.batch} · context {run.context} + {run.tokens} tokens · "
            f"{sampling_words(run.sampling)}",
            f"{rounds}, variants in turn · device: {run.device} · {run.device_name}",
            *([f"interpreted, without times: {', '.join(untimed)}"] if untimed else ()),
        ),
        sections=_with_rows(
            Section("Tokens/s, unprofiled", rates_table(sides)),
            _speed_section(result.pairs),
            Section(
                "Accuracy of the logits", accuracy_table(sides), "".join(accuracy_notes(sides)[:1])
            ),
            Section(
                "Speed beside error", standings_table(ranked, result.standings), STANDINGS_NOTE
            ),
            *_change_sections(result.pairs, _UNPROFILED_STEP, _ops_noun(run.device == "cpu")),
            _waterfall_section(sides),
        ),
        findings=result.findings,
        gate=result.gate,
    )


def _diff_summary(diff: Diff) -> Summary:
    reports = {BASE: diff.base, OTHER: diff.other}
    pairs = (replace(diff.pair, base=BASE, other=OTHER),)
    step = _UNPROFILED_STEP if has_unprofiled_times(diff) else _PROFILED_STEP
    devices = [device for report in reports.values() for device in report.devices]
    ops = _ops_noun(all(device.device == "cpu" for device in devices))
    per = "per step" if diff.base.steps or diff.other.steps else "in all"
    weights = [report.capture.weights for report in reports.values() if report.capture]
    return Summary(
        title="What changed from A to B",
        weights_note=", ".join(dict.fromkeys(filter(None, map(weights_note, weights)))),
        facts=tuple(_source_line(name, report) for name, report in reports.items()),
        sections=_with_rows(
            _speed_section(pairs),
            *_change_sections(pairs, step, ops, per),
            _waterfall_section(sides_of(diff)),
        ),
        findings=diff.findings,
        gate=diff.gate,
    )


def _with_rows(*sections: Section) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.table.rows)


def _ops_noun(on_cpu: bool) -> str:
    return "leaf operators" if on_cpu else "GPU ops"


def _source_line(name: str, report: Report) -> str:
    parts = [f"{name}: {report.source.path}"]
    if capture := report.capture:
        parts += [capture.model, capture.variant, capture.dtype]
        parts += [f"batch {capture.batch}", f"context {capture.context}"]
    parts.append(", ".join(device.name or device_words(device.device) for device in report.devices))
    parts.append("1 step" if len(report.steps) == 1 else f"{len(report.steps)} steps")
    return " · ".join(filter(None, parts))


def _speed_section(pairs: Sequence[Pair]) -> Section:
    """The ratio of tokens/s of each pair, and its verdict."""
    reasons = [pair.speed.reason for pair in pairs if pair.speed and pair.speed.reason]
    return Section("Ratios of tokens/s", speed_table(pairs), "; ".join(dict.fromkeys(reasons)))


def _change_sections(
    pairs: Sequence[Pair], step: str, ops: str, per: str = "per step"
) -> Iterator[Section]:
    """Changes of each pair: figures, roles, layers and ranges; `step` and `ops` name the step time
    and the ops."""
    for pair in pairs:
        sides = f"{pair.base} to {pair.other}"
        yield Section(f"What changed {per}: {sides}", changes_table(pair, step, ops))
        yield from step_change_sections(pair)
        yield range_section(pair)


def step_change_sections(pair: Pair) -> Iterator[Section]:
    """The roles, then the layers that changed most; both end with the step that they add up to."""
    if pair.step is None:
        return
    sides = f"{pair.base} to {pair.other}"
    yield Section(f"By role, per step: {sides}", whole_step_table(pair, "role"), STEP_NOTE)
    if layers := pair.step.layers:
        means = any(row.kind == "more_layers" for row in layers)
        note = "a number of layers stands for their mean" if means else ""
        table = whole_step_table(pair, "layer", _MOST_LAYERS)
        yield Section(f"By layer, per step: {sides}", table, note)


def range_section(pair: Pair) -> Section:
    """The innermost ranges whose busy (if ops overlap: attributed) and idle time changed most."""
    rows, shared_path, more = most_changed_ranges(pair)
    notes = [
        f"all in {shared_path[:-1]}" if shared_path else "",
        f"{more} more changed less" if more else "",
        "attributed times, because ops overlap" if pair.overlapping else "",
    ]
    table = range_changes_table(pair, rows, (pair.base, pair.other), counts=False)
    return Section(
        f"Ranges that changed most: {pair.base} to {pair.other}",
        table,
        "; ".join(filter(None, notes)),
    )


def _waterfall_section(sides: Sequence[Side]) -> Section:
    waterfalls = {side.name: side.window.answer.parts for side in sides if side.window}
    return Section("Where the step goes", waterfall_table(waterfalls, shares=False))
