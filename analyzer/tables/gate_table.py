"""The figures that a gate judges, and those beside them."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from decodescope.analyzer.schema.gate_report import GateRow, Sample, Subject
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.text.formatting import UNKNOWN, interval_text, ratio_text
from decodescope.analyzer.vocabulary.gate_words import figure_words, verdict_words


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A trace or a run, of the subject of that name."""

    subject: str
    sample: Sample


def gate_table(rows: Sequence[GateRow]) -> Table[GateRow]:
    """One row for each step, and for each of its parts."""
    return Table("gate", _GATE, rows)


def samples_table(subjects: Sequence[Subject]) -> Table[SampleRow]:
    """One row for each trace or run of a baseline."""
    rows = [SampleRow(subject.name, one) for subject in subjects for one in subject.samples]
    return Table("samples", _SAMPLES, rows)


def _interval(row: GateRow) -> str:
    return UNKNOWN if row.interval is None else interval_text(row.interval, ratio_text)


_GATE: tuple[Column[GateRow], ...] = (
    kinds.NAME("figure", "figure", figure_words),
    kinds.TEXT("verdict", "verdict", text=verdict_words),
    kinds.DURATION("base_ns", "baseline"),
    kinds.DURATION("now_ns", "now"),
    kinds.RATIO("ratio", "ratio"),
    kinds.TEXT("interval", "95 %", _interval),
)
_SAMPLES: tuple[Column[SampleRow], ...] = (
    kinds.TEXT("subject", "subject"),
    kinds.NAME("path", "file", "sample.path"),
    kinds.DURATION("step_ns", "step", lambda row: median_low(row.sample.step_times_ns)),
    kinds.COUNT("steps", "steps", lambda row: len(row.sample.step_times_ns)),
)
