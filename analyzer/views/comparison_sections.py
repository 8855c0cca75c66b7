"""A comparison or a diff as titles, tables and notes of text, for a terminal or a pull request."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from decodescope.analyzer.comparing.range_rows import most_changed_ranges
from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.comparing.step_answer import BASE, OTHER
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    Diff,
    DiffAnswer,
    Gate,
    Pair,
    StepChanges,
)
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.step_report import StepKind
from decodescope.analyzer.tables.changes_table import (
    changes_table,
    range_changes_table,
    whole_layers_table,
    whole_parts_table,
)
from decodescope.analyzer.tables.columns import Table
from decodescope.analyzer.tables.sides_table import (
    accuracy_notes,
    accuracy_table,
    rates_table,
    speed_table,
    standings_table,
)
from decodescope.analyzer.text.formatting import (
    duration,
    ratio_text,
    sampling_words,
    signed_change,
    weights_note,
)
from decodescope.analyzer.vocabulary.words import (
    STANDINGS_NOTE,
    STEP_NOTE,
    device_words,
    part_words,
    step_ratio_text,
)

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
            *_change_sections(result.pairs, _ops_noun(run.device == "cpu")),
        ),
        findings=result.findings,
        gate=result.gate,
    )


def _diff_summary(diff: Diff) -> Summary:
    reports = {BASE: diff.base, OTHER: diff.other}
    pair = replace(diff.pair, base=BASE, other=OTHER, step=diff.answer)
    devices = [device for report in reports.values() for device in report.devices]
    ops = _ops_noun(all(device.device == "cpu" for device in devices))
    per = "per step" if diff.base.steps or diff.other.steps else "in all"
    weights = [report.capture.weights for report in reports.values() if report.capture]
    traces = (diff.answer.base_traces, diff.answer.other_traces)
    title, *answer_facts = answer_lines(diff)
    return Summary(
        title=title,
        weights_note=", ".join(dict.fromkeys(filter(None, map(weights_note, weights)))),
        facts=(
            *answer_facts,
            *(
                _source_line(name, report, len(of_side))
                for (name, report), of_side in zip(reports.items(), traces, strict=True)
            ),
        ),
        sections=_with_rows(*_change_sections((pair,), ops, per)),
        findings=diff.findings,
        gate=diff.gate,
    )


def answer_lines(diff: Diff) -> Iterator[str]:
    """Step against step in one line; the part that changed most (that the profiler's cost changed
    says nothing about the step); the step times without a profiler."""
    answer = diff.answer
    yield _step_line(answer, diff.base.answer.kind)
    largest = next((row for row in answer.parts if row.group != "profiler"), None)
    if largest is not None and largest.change_ns:
        whole_ns = sum(row.change_ns for row in answer.parts)
        yield (
            f"changed most: {part_words(largest.part)} {signed_change(largest.change_ns)}, of the "
            f"step {signed_change(whole_ns)}"
        )
    if answer.unprofiled_ratio is not None:
        base_ns, other_ns = (report.answer.unprofiled_step_ns for report in (diff.base, diff.other))
        ratio = "" if answer.differences else f", {ratio_text(answer.unprofiled_ratio)}"
        yield f"unprofiled: {duration(base_ns)} → {duration(other_ns)}{ratio}"


def _step_line(answer: DiffAnswer, kind: StepKind) -> str:
    """Of sides that differ, in what comes first, and their two step times are no ratio."""
    if answer.base_step_ns is None and answer.other_step_ns is None:
        return "What changed from A to B: whole traces, without steps"
    base, other = duration(answer.base_step_ns), duration(answer.other_step_ns)
    if answer.differences:
        return f"A and B differ in {', '.join(answer.differences)}: step {base} in A, {other} in B"
    step = "step" if kind == "unknown" else f"{kind} step"
    return f"{step} from A to B: {base} → {other}, {step_ratio_text(answer)}"


def _with_rows(*sections: Section) -> tuple[Section, ...]:
    return tuple(section for section in sections if section.table.rows)


def _ops_noun(on_cpu: bool) -> str:
    return "leaf operators" if on_cpu else "GPU ops"


def _source_line(name: str, report: Report, traces: int) -> str:
    parts = [f"{name}: {report.source.path}"]
    if capture := report.capture:
        parts += [capture.model, capture.variant, capture.dtype]
        parts += [f"batch {capture.batch}", f"context {capture.context}"]
    parts.append(", ".join(device.name or device_words(device.device) for device in report.devices))
    parts.append("1 step" if report.answer.steps == 1 else f"{report.answer.steps} steps")
    if traces > 1:
        parts.append(f"the median of {traces} traces")
    return " · ".join(filter(None, parts))


def _speed_section(pairs: Sequence[Pair]) -> Section:
    """The ratio of tokens/s of each pair, and its verdict."""
    reasons = [pair.speed.reason for pair in pairs if pair.speed and pair.speed.reason]
    return Section("Ratios of tokens/s", speed_table(pairs), "; ".join(dict.fromkeys(reasons)))


def _change_sections(pairs: Sequence[Pair], ops: str, per: str = "per step") -> Iterator[Section]:
    """Changes of each pair: parts of the step, layers, counts and ranges; `ops` names the ops."""
    for pair in pairs:
        sides = f"{pair.base} to {pair.other}"
        if pair.step is not None:
            yield from _step_sections(pair.step, (pair.base, pair.other), per)
        yield Section(f"What changed {per}: {sides}", changes_table(pair, ops))
        yield range_section(pair)


def _step_sections(step: StepChanges, names: tuple[str, str], per: str) -> Iterator[Section]:
    """The parts, then the layers that changed most; both end with the step that they add up to."""
    sides = " to ".join(names)
    if step.parts:
        yield Section(
            f"Where the time went {per}: {sides}", whole_parts_table(step, names), STEP_NOTE
        )
    if layers := step.layers:
        means = any(row.kind == "more_layers" for row in layers)
        note = "a number of layers stands for their mean" if means else ""
        table = whole_layers_table(step, names, _MOST_LAYERS)
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
