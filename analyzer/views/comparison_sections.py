"""A comparison or a diff as titles, tables and notes of text, for a terminal or a pull request."""

import math
from dataclasses import dataclass

from decodescope.analyzer.comparing.diff import BASE, OTHER, has_unprofiled_times
from decodescope.analyzer.formatting import (
    UNKNOWN,
    duration,
    interval_text,
    percent,
    rate,
    sampling_words,
    signed_duration,
    significant,
    weights_note,
)
from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate, Pair, VariantRates
from decodescope.analyzer.schema.report import CaptureInfo, Report, WaterfallPart
from decodescope.analyzer.views.pair_sections import (
    PairLabels,
    Section,
    change_section,
    range_section,
    speed_section,
)
from decodescope.analyzer.views.words import part_words

UNPROFILED_STEP, PROFILED_STEP = "step, unprofiled", "step, profiled"


@dataclass(frozen=True, slots=True)
class Summary:
    """All that is said, in its order: title with the note on its weights, facts, tables, findings,
    and the gate's sentence with its failures."""

    title: str
    weights_note: str
    facts: tuple[str, ...]
    sections: tuple[Section, ...]
    findings: tuple[str, ...]
    gate: str
    failures: tuple[str, ...]


def comparison_summary(comparison: Comparison) -> Summary:
    """Everything of a comparison that fits tables."""
    run, result = comparison.runs[0], comparison.comparison
    ops = _ops(on_cpu=run.device == "cpu")
    pairs = [
        (pair, PairLabels(pair.base, pair.other, UNPROFILED_STEP, ops)) for pair in result.pairs
    ]
    waterfalls = {
        one.variant: comparison.windows[one.variant].waterfall
        for one in result.variants
        if one.variant in comparison.windows
    }
    rounds = "1 round" if result.rounds == 1 else f"{result.rounds} rounds"
    return Summary(
        title=run.model,
        weights_note=weights_note(run.weights),
        facts=(
            f"{run.dtype} · batch {run.batch} · context {run.context} + {run.tokens} tokens · "
            f"{sampling_words(run.sampling)}",
            f"{rounds}, variants in turn · device: {run.device} · {run.device_name}",
        ),
        sections=(
            _rates_section(result.variants),
            speed_section(pairs),
            *_accuracy_sections(result.variants),
            *_pair_sections(pairs, "per step"),
            *_waterfall_sections(waterfalls),
        ),
        findings=tuple(finding.message for finding in result.findings),
        gate=_gate_sentence(result.gate),
        failures=result.gate.failures if result.gate else (),
    )


def diff_summary(diff: Diff) -> Summary:
    """Everything of a diff that fits tables."""
    reports = {BASE: diff.base, OTHER: diff.other}
    on_cpu = all(device.device == "cpu" for report in reports.values() for device in report.devices)
    step = UNPROFILED_STEP if has_unprofiled_times(diff) else PROFILED_STEP
    pairs = [(diff.pair, PairLabels(BASE, OTHER, step, _ops(on_cpu=on_cpu)))]
    has_steps = diff.base.steps or diff.other.steps
    waterfalls = {name: report.waterfall for name, report in reports.items()}
    weights = [report.capture.weights for report in reports.values() if report.capture]
    return Summary(
        title="What changed from A to B",
        weights_note=", ".join(dict.fromkeys(filter(None, map(weights_note, weights)))),
        facts=tuple(_source_line(name, report) for name, report in reports.items()),
        sections=(
            speed_section(pairs),
            *_pair_sections(pairs, "per step" if has_steps else "in all"),
            *_waterfall_sections(waterfalls),
        ),
        findings=tuple(finding.message for finding in diff.findings),
        gate=_gate_sentence(diff.gate),
        failures=diff.gate.failures if diff.gate else (),
    )


def _ops(*, on_cpu: bool) -> str:
    return "leaf operators" if on_cpu else "GPU ops"


def _source_line(name: str, report: Report) -> str:
    steps = "1 step" if len(report.steps) == 1 else f"{len(report.steps)} steps"
    captured = _capture_words(report.capture) if report.capture else ""
    devices = ", ".join(device.name or f"GPU {device.device}" for device in report.devices)
    return " · ".join(
        part for part in (f"{name}: {report.source.path}", captured, devices, steps) if part
    )


def _capture_words(capture: CaptureInfo) -> str:
    return (
        f"{capture.model} · {capture.variant} · {capture.dtype} · batch {capture.batch} · "
        f"context {capture.context}"
    )


def _rates_section(variants: tuple[VariantRates, ...]) -> Section:
    return Section(
        "Tokens/s, unprofiled",
        ("variant", "tokens/s", "95 % interval", "rounds"),
        tuple(
            (
                one.variant,
                *(
                    rate(one.mean),
                    interval_text(one.interval, significant),
                    f"{len(one.tokens_per_s)}",
                ),
            )
            for one in variants
        ),
    )


def _accuracy_sections(variants: tuple[VariantRates, ...]) -> tuple[Section, ...]:
    scored = [(one.variant, one.accuracy) for one in variants if one.accuracy is not None]
    if not scored:
        return ()
    first = scored[0][1]
    rows = tuple(
        (
            name,
            *(_small(found.logit_rel_error), _small(found.kl)),
            f"{percent(found.top1_agreement)} %",
            *(_small(found.perplexity, 4), f"{found.perplexity_ratio:.4f}"),
        )
        for name, found in scored
    )
    return (
        Section(
            "Accuracy of the logits",
            ("variant", "error", "KL, nats", "top-1", "perplexity", "ratio"),
            rows,
            note=f"against {first.reference}, {first.positions} positions of {first.text}",
        ),
    )


def _small(value: float, digits: int = 3) -> str:
    return f"{value:.{digits}g}" if math.isfinite(value) else UNKNOWN


def _pair_sections(pairs: list[tuple[Pair, PairLabels]], per: str) -> list[Section]:
    sections = []
    for pair, labels in pairs:
        sections.append(change_section(pair, labels, per))
        if ranges := range_section(pair, labels):
            sections.append(ranges)
    return [section for section in sections if section.rows]


def _waterfall_sections(
    waterfalls: dict[str, tuple[WaterfallPart, ...]],
) -> tuple[Section, ...]:
    """One column for each waterfall; parts that are nothing everywhere are left out."""
    columns = {
        name: {part.part: part.ns for part in parts} for name, parts in waterfalls.items() if parts
    }
    if not columns:
        return ()
    parts = dict.fromkeys(part for column in columns.values() for part in column)
    rows = [
        (part_words(part), *(signed_duration(column.get(part)) for column in columns.values()))
        for part in parts
        if any(column.get(part) for column in columns.values())
    ]
    rows.append(("step", *(duration(sum(column.values())) for column in columns.values())))
    return (Section("Where one profiled step goes", ("", *columns), tuple(rows)),)


def _gate_sentence(gate: Gate | None) -> str:
    if gate is None:
        return ""
    outcome = "failed" if gate.failures else "passed"
    allowed = f"{gate.allowed_percent:g} % slower than {gate.baseline}"
    return f"Regression gate {outcome}: up to {allowed} is allowed"
