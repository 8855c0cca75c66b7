"""A comparison or a diff as one row for each side."""

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from decodescope.analyzer.comparing.diff import BASE, OTHER
from decodescope.analyzer.reports.step_figures import (
    gpu_ops_per_step,
    idle_fraction,
    launch_calls_per_step,
    window_bandwidth,
)
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    Diff,
    DiffAnswer,
    Pair,
    SpeedRatio,
    VariantRates,
)
from decodescope.analyzer.schema.report import LiveRates, Report
from decodescope.analyzer.schema.run_report import Accuracy, Interval


@dataclass(frozen=True, slots=True)
class Side:
    """One variant of a comparison, or one trace of a diff; what is unknown is None.

    `ratio` is tokens/s ÷ those of the first side, which has none; `answer` compares the steps of
    two traces, and is that of the second. `step_ns` is the step time that the rates mean, of a
    trace its step time; `idle` the share of the window without GPU work. `beaten_by` is None if the
    side is not ranked, and empty if nothing beats it. `window` has the profiled steps, `live` the
    rates of the recorded run.
    """

    name: str
    window: Report | None
    tokens_per_s: float | None
    step_ns: float | None
    mbu: float | None
    launches: float | None
    gpu_ops: float | None
    idle: float | None
    rounds: int | None = None
    ratio: SpeedRatio | None = None
    about: str = ""
    interval: Interval | None = None
    accuracy: Accuracy | None = None
    beaten_by: tuple[str, ...] | None = None
    interpreted: bool = False
    answer: DiffAnswer | None = None
    live: LiveRates | None = None


def sides_of(compared: Comparison | Diff) -> tuple[Side, ...]:
    """Every side, the first one is the base."""
    if isinstance(compared, Comparison):
        return tuple(_variant(compared, rates) for rates in compared.comparison.variants)
    return _trace(compared, BASE), _trace(compared, OTHER)


def pair_with_first(compared: Comparison | Diff, name: str) -> Pair | None:
    """The changes from the first side to the side `name`; None for the first itself."""
    if isinstance(compared, Diff):
        return replace(compared.pair, step=compared.answer) if name == OTHER else None
    first = compared.comparison.variants[0].variant
    pairs = (p for p in compared.comparison.pairs if (p.base, p.other) == (first, name))
    return next(pairs, None)


def _side(name: str, window: Report | None, **figures: Any) -> Side:
    on_gpu = window is not None and not window.on_cpu
    return Side(
        name=name,
        window=window,
        launches=launch_calls_per_step(window) if window and on_gpu else None,
        gpu_ops=gpu_ops_per_step(window) if window else None,
        idle=idle_fraction(window) if window else None,
        **figures,
    )


def _variant(compared: Comparison, rates: VariantRates) -> Side:
    runs = [run for run in compared.runs if run.variant == rates.variant]
    pair = pair_with_first(compared, rates.variant)
    mbu = [run.bandwidth.mbu for run in runs if run.bandwidth and run.bandwidth.mbu is not None]
    standings = {standing.variant: standing for standing in compared.comparison.standings}
    standing = standings.get(rates.variant)
    return _side(
        rates.variant,
        compared.windows.get(rates.variant),
        rounds=len(rates.tokens_per_s),
        tokens_per_s=rates.mean,
        interval=rates.interval,
        ratio=pair.speed if pair is not None else None,
        step_ns=runs[0].batch * 1e9 / rates.mean if rates.mean else None,
        mbu=sum(mbu) / len(mbu) if mbu else None,
        accuracy=rates.accuracy,
        beaten_by=standing.beaten_by if standing is not None else None,
        interpreted=rates.interpreted,
    )


def _trace(diff: Diff, name: str) -> Side:
    report = diff.base if name == BASE else diff.other
    capture, bandwidth = report.capture, window_bandwidth(report)
    file = PurePath(report.source.path).name
    return _side(
        name,
        report,
        about=f"{capture.variant} · {file}" if capture is not None else file,
        tokens_per_s=report.answer.tokens_per_s,
        step_ns=report.answer.step_ns,
        mbu=None if bandwidth is None else bandwidth.mbu,
        answer=diff.answer if name == OTHER else None,
        live=report.source.live,
    )
