"""A gate's figures and verdicts in words."""

from collections.abc import Mapping

from decodescope.analyzer.schema.gate_report import GateReport, GateRow
from decodescope.analyzer.text.formatting import counted, duration, ratio_text
from decodescope.analyzer.vocabulary.words import interval_words, part_words

_OUTCOMES = {"slower": "failed", "within": "passed", "undecided": "too noisy to decide"}


def figure_words(row: GateRow) -> str:
    """`step`, `waiting for the host`, or of a variant's runs, `fused`."""
    return row.subject if row.part is None else part_words(row.part)


def condition_words(conditions: Mapping[str, str]) -> str:
    """`decode · llama-3.2-1b · batch 1 · NVIDIA H200`: what says itself what it is stands alone."""
    plain = ("kind", "model", "weights", "dtype", "sampling", "device")
    return " · ".join(
        text if name in plain else f"{name} {text}" for name, text in conditions.items()
    )


def outcome_words(report: GateReport) -> str:
    return f"gate against {report.baseline}, saved {report.saved_at}: {_OUTCOMES[report.verdict]}"


def verdict_words(row: GateRow) -> str:
    """`within 2 %`, `beyond 2 %`, `undecided`; empty for a figure that is not judged."""
    if row.verdict is None:
        return ""
    if row.verdict == "undecided":
        return "undecided"
    return f"{'beyond' if row.verdict == 'slower' else 'within'} {row.allowed_percent:g} %"


def row_sentence(row: GateRow) -> str:
    """`attention: 20 µs → 22 µs, x1.103 (95 %: x1.081 to x1.125); allowed are 5 %`; of an undecided
    one, what would decide."""
    sentence = f"{figure_words(row)}: {duration(row.base_ns)} → {duration(row.now_ns)}"
    if row.ratio is not None:
        sentence += f", {ratio_text(row.ratio)}"
    sentence += interval_words(row.interval)
    if row.allowed_percent is not None:
        sentence += f"; allowed are {row.allowed_percent:g} %"
    return f"{sentence}; {_what_decides(row)}" if row.verdict == "undecided" else sentence


def _what_decides(row: GateRow) -> str:
    if row.ratio is None:
        return "a side has no time of it"
    if row.more_samples is None:
        return "no practical number of samples would decide"
    more = counted(row.more_samples, f"more {row.counted_in}")
    return f"too noisy to decide: about {more} a side would do"
