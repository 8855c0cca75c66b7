"""Reads what a gate compares: the traces and the comparisons of one side, as subjects."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from decodescope.analyzer.answer.parts import part_times_ns
from decodescope.analyzer.comparing.comparability import (
    Conditions,
    differences,
    kv_tokens,
    run_conditions,
    trace_conditions,
)
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.gate_report import Sample, Subject
from decodescope.analyzer.schema.run_report import RunReport

STEP = "step"
KV_TOKENS = "kv_tokens"
SOFTWARE = ("decodescope", "torch", "triton", "transformers", "cuda")

_MOST_STEPS = 100


@dataclass(frozen=True, slots=True)
class Measured:
    """One sample of the subject `name`, with the conditions that it was measured under."""

    name: str
    conditions: Conditions
    sample: Sample


def measured_trace(analysis: Analysis) -> Measured:
    """A trace. Its parts are those of up to 100 of its timed steps, evenly chosen.

    Raises:
        InputError: it has no step whose time is known, or no op.
    """
    report = analysis.report
    if not report.devices:
        raise InputError(
            f"{report.source.path}: no GPU activity was recorded, so a gate cannot tell what a "
            "step takes; record it (see `decodescope analyze`)"
        )
    timed = [step for step in report.steps if step.timed]
    if not timed:
        raise InputError(
            f"{report.source.path}: has no steps, so there is no step time to compare; put a range "
            "named decode_step around each step"
        )
    count = min(len(timed), _MOST_STEPS)
    chosen = [timed[k * len(timed) // count].index for k in range(count)]
    of_steps = [part_times_ns(analysis, index) for index in chosen]
    part_names = dict.fromkeys(part for parts in of_steps for part in parts)
    sample = Sample(
        report.source.path,
        tuple(step.time_ns or 0 for step in timed),
        {name: tuple(parts.get(name, 0) for parts in of_steps) for name in part_names},
    )
    conditions = trace_conditions(report)
    if report.capture is None and (tokens := kv_tokens(report)):
        conditions[KV_TOKENS] = str(tokens)
    return Measured(STEP, conditions, sample)


def measured_runs(comparison: Comparison, path: str) -> list[Measured]:
    """The runs of a comparison, one sample each; runs that were not timed are left out."""
    return [
        Measured(run.variant, _conditions_of_run(run), Sample(path, (_step_ns(run),), {}))
        for run in comparison.runs
        if run.tokens_per_s
    ]


def _step_ns(run: RunReport) -> int:
    return round(run.batch * 1e9 / (run.tokens_per_s or 1.0))


def _conditions_of_run(run: RunReport) -> Conditions:
    environment = {name: run.environment.get(name) for name in ("driver", *SOFTWARE)}
    known = {name: str(value) for name, value in environment.items() if value is not None}
    return run_conditions(run) | known


def subjects_of(measured: Iterable[Measured]) -> tuple[Subject, ...]:
    """The samples by the names of their subjects, in their order.

    Raises:
        InputError: the samples of a subject are of different work, or of different devices.
    """
    by_name: dict[str, list[Measured]] = {}
    for one in measured:
        by_name.setdefault(one.name, []).append(one)
    return tuple(_subject(name, group) for name, group in by_name.items())


def _subject(name: str, group: Sequence[Measured]) -> Subject:
    first = group[0]
    for one in group[1:]:
        if found := differences(first.conditions, one.conditions):
            raise InputError(
                f"{one.sample.path}: differs from {first.sample.path} in "
                f"{', '.join(found.values())}; a side is of one work on one kind of device"
            )
    return Subject(name, first.conditions, tuple(one.sample for one in group))
