"""Windows of repeated calls, captured as decodescope captures decode steps, and analysed by it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

import decodescope
from decodescope.analyzer import Analysis, analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.reports.step_figures import gpu_ops_per_step, idle_fraction
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.trace import Int64s
from decodescope.variants.machine.environment import device_name
from decodescope.variants.model.workload import DType
from decodescope.variants.tuning.report import RoundSpread

STEPS = 20
WINDOWS = 3
_WARM_STEPS = 3


@dataclass(frozen=True, slots=True)
class Traced:
    """The windows of one call, each a trace of `STEPS` steps; a step is one call.

    `idle_share`: idle time ÷ window. `gap_p50_ns`: the median of all gaps between GPU ops.
    `busy_ns`: the median busy time of a step; `launches`: its GPU ops.
    """

    windows: tuple[Analysis, ...]

    @property
    def idle_share(self) -> RoundSpread:
        return RoundSpread.of([idle_fraction(one.report) or 0.0 for one in self.windows])

    @property
    def gap_p50_ns(self) -> RoundSpread | None:
        return _medians([one.gaps.length_ns for one in self.windows])

    @property
    def busy_ns(self) -> float:
        return median(step.busy_ns for one in self.windows for step in one.report.steps)

    @property
    def launches(self) -> RoundSpread:
        return RoundSpread.of([gpu_ops_per_step(one.report) or 0.0 for one in self.windows])

    def idle_between_ns(self, kernel: str) -> RoundSpread | None:
        """The median idle time between a kernel whose name contains `kernel` and the next such one
        of the same step; None if no step has two of them."""
        return _medians([idle_between(one, kernel) for one in self.windows])


def traced(
    session: ProfilerSession,
    call: Callable[[], object],
    model: str,
    variant: str,
    dtype: DType,
    unprofiled_ns: float | None,
    device: str,
) -> Traced:
    """Capture `WINDOWS` windows of `call`, and analyse each."""
    info = CaptureInfo(
        device=device,
        device_name=device_name(device),
        model=model,
        weights="random",
        variant=variant,
        dtype=dtype,
        batch=1,
        context=0,
        position=0,
        steps=STEPS,
        bytes_per_step=0,
        unprofiled_step_ns=None if unprofiled_ns is None else round(unprofiled_ns),
        decodescope_version=decodescope.__version__,
        kernel_floor_ns=session.kernel_floor_ns,
        lead_steps=1,
    )

    def window() -> Analysis:
        with WorkFolder() as folder:
            path = Path(folder, "window.json")
            session.capture(call, STEPS, path, info, _WARM_STEPS)
            return analyze(load(path))

    return Traced(tuple(window() for _ in range(WINDOWS)))


def idle_between(analysis: Analysis, kernel: str) -> Int64s:
    """Idle ns between each op whose name contains `kernel` and the next such op of its step, on one
    device."""
    ops, gaps, names = analysis.trace.ops, analysis.gaps, analysis.trace.names
    named = [index for index, name in enumerate(names) if kernel in name]
    chosen = np.flatnonzero(np.isin(ops.name, named))
    step = np.searchsorted(analysis.steps.span.start_ns, ops.start_ns[chosen], side="right")
    until_ns = np.concatenate(([0], np.cumsum(gaps.length_ns)))

    def idle_before(at_ns: Int64s) -> Int64s:
        return np.asarray(until_ns[np.searchsorted(gaps.end_ns, at_ns, side="right")])

    between = idle_before(ops.start_ns[chosen[1:]]) - idle_before(ops.end_ns[chosen[:-1]])
    return np.asarray(between[step[1:] == step[:-1]])


def _medians(windows: Sequence[Int64s]) -> RoundSpread | None:
    if not all(len(one) for one in windows):
        return None
    return RoundSpread.of([float(np.median(one)) for one in windows])
