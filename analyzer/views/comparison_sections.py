"""A comparison or a diff as titles, tables and notes of text, for a terminal or a pull request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from decodescope.analyzer.comparing.diff import BASE, OTHER, has_unprofiled_times
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    ComparisonResult,
    Diff,
    Gate,
    Pair,
)
from decodescope.analyzer.schema.report import Finding, Report, WaterfallPart
from decodescope.analyzer.tables.sides import Side, sides_of
from decodescope.analyzer.tables.sides_table import (
    accuracy_notes,
    accuracy_table,
    rates_table,
    standings_table,
    waterfalls_table,
)
from decodescope.analyzer.text.formatting import (
    sampling_words,
    weights_note,
)
from decodescope.analyzer.views.pair_sections import (
    Section,
    change_section,
    range_section,
    speed_section,
    step_change_sections,
)
from decodescope.analyzer.vocabulary.words import (
    STANDINGS_NOTE,
    device_words,
)

_UNPROFILED_STEP, _PROFILED_STEP = "step, unprofiled", "step, profiled"


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
        """A sentence for each failure of the gate."""
        return self.gate.failures if self.gate else ()


def summary_of(compared: Comparison | Diff) -> Summary:
    """Everything of a comparison or a diff that fits tables."""
    return _diff_summary(compared) if isinstance(compared, Diff) else _comparison_summary(compared)


def _comparison_summary(comparison: Comparison) -> Summary:
    run, result = comparison.runs[0], comparison.comparison
    waterfalls = {
        variant.variant: comparison.windows[variant.variant].waterfall
        for variant in result.variants
        if variant.variant in comparison.windows
    }
    sides = sides_of(comparison)
    untimed = [variant.variant for variant in result.variants if variant.interpreted]
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    ops = _ops(on_cpu=run.device == "cpu")
    return Summary(
        title=run.model,
        weights_note=weights_note(run.weights),
        facts=(
            f"{run.dtype} · batch {run.batch} · context {run.context} + {run.tokens} tokens · "
            f"{sampling_words(run.sampling)}",
            f"{rounds}, variants in turn · device: {run.device} · {run.device_name}",
            *([f"interpreted, without times: {', '.join(untimed)}"] if untimed else ()),
        ),
        sections=(
            Section("Tokens/s, unprofiled", rates_table(sides)),
            speed_section(result.pairs),
            *_accuracy_sections(sides),
            *_standing_sections(result, sides),
            *_pair_sections(result.pairs, _UNPROFILED_STEP, ops, "per step"),
            *_waterfall_sections(waterfalls),
        ),
        findings=result.findings,
        gate=result.gate,
    )


def _diff_summary(diff: Diff) -> Summary:
    reports = {BASE: diff.base, OTHER: diff.other}
    pairs = (replace(diff.pair, base=BASE, other=OTHER),)
    step = _UNPROFILED_STEP if has_unprofiled_times(diff) else _PROFILED_STEP
    per = "per step" if diff.base.steps or diff.other.steps else "in all"
    devices = [device for report in reports.values() for device in report.devices]
    ops = _ops(on_cpu=all(device.device == "cpu" for device in devices))
    weights = [report.capture.weights for report in reports.values() if report.capture]
    return Summary(
        title="What changed from A to B",
        weights_note=", ".join(dict.fromkeys(filter(None, map(weights_note, weights)))),
        facts=tuple(_source_line(name, report) for name, report in reports.items()),
        sections=(
            speed_section(pairs),
            *_pair_sections(pairs, step, ops, per),
            *_waterfall_sections({name: report.waterfall for name, report in reports.items()}),
        ),
        findings=diff.findings,
        gate=diff.gate,
    )


def _ops(*, on_cpu: bool) -> str:
    return "leaf operators" if on_cpu else "GPU ops"


def _source_line(name: str, report: Report) -> str:
    parts = [f"{name}: {report.source.path}"]
    if capture := report.capture:
        parts += [capture.model, capture.variant, capture.dtype]
        parts += [f"batch {capture.batch}", f"context {capture.context}"]
    parts.append(", ".join(device.name or device_words(device.device) for device in report.devices))
    parts.append("1 step" if len(report.steps) == 1 else f"{len(report.steps)} steps")
    return " · ".join(filter(None, parts))


def _accuracy_sections(sides: Sequence[Side]) -> tuple[Section, ...]:
    table = accuracy_table(sides)
    if not table.rows:
        return ()
    return (Section("Accuracy of the logits", table, note=accuracy_notes(sides)[0]),)


def _standing_sections(result: ComparisonResult, sides: Sequence[Side]) -> tuple[Section, ...]:
    if not result.standings:
        return ()
    table = standings_table(sides, result.standings)
    return (Section("Speed beside error", table, note=STANDINGS_NOTE),)


def _pair_sections(pairs: Sequence[Pair], step: str, ops: str, per: str) -> list[Section]:
    sections = (
        section
        for pair in pairs
        for section in (
            change_section(pair, step, ops, per),
            *step_change_sections(pair),
            range_section(pair),
        )
    )
    return [section for section in sections if section.table.rows]


def _waterfall_sections(
    waterfalls: Mapping[str, Sequence[WaterfallPart]],
) -> tuple[Section, ...]:
    table = waterfalls_table(waterfalls)
    return (Section("Where one profiled step goes", table),) if table.rows else ()
