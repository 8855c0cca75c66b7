"""What happened in a span of time: ops, busy and idle time, launches and kernels."""

from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.reports.analysis import Analysis
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.timing.intervals import covered_until
from decodescope.analyzer.timing.timeline import idle_inside
from decodescope.analyzer.trace import Intervals, rows_by


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """One device in a span: the ops that ran in it, the time they ran, and the idle time by class.

    `idle_ns` are (class, ns) of the gaps inside, the longest first; `before_or_after_ns` is the
    time before the device's first op and after its last one. With the busy time they add up to the
    span.
    """

    label: int | str
    ops: int
    busy_ns: int
    idle_ns: tuple[tuple[str, int], ...]
    before_or_after_ns: int


@dataclass(frozen=True, slots=True)
class SpanTotals:
    """A span of time of all devices. `launch_calls` began in it; `kernels` are (name, ops,
    attributed ns inside it), the longest first."""

    start_ns: int
    end_ns: int
    devices: tuple[DeviceTotals, ...]
    launch_calls: int
    kernels: tuple[tuple[str, int, int], ...]

    @property
    def length_ns(self) -> int:
        """How long the span is."""
        return self.end_ns - self.start_ns


def span_totals(analysis: Analysis, start_ns: int, end_ns: int) -> SpanTotals:
    """The totals of [start, end): O(n). An op counts if it ran for some of the time in it."""
    trace = analysis.trace
    begun = int(trace.ops.start_ns.searchsorted(end_ns, side="left"))
    inside = np.flatnonzero(trace.ops.end_ns[:begun] > start_ns)
    ops, attributed = trace.ops.take(inside), analysis.attributed_ns[inside]
    attributed_ns = np.minimum(ops.end_ns, end_ns) - np.maximum(ops.end_ns - attributed, start_ns)
    names, name = np.unique(ops.name, return_inverse=True)
    counts = np.bincount(name, minlength=len(names)).tolist()
    times = np.zeros(len(names), dtype=np.int64)
    np.add.at(times, name, np.maximum(attributed_ns, 0))
    kernels = zip((trace.names[one] for one in names), counts, times.tolist(), strict=True)
    called_ns = trace.calls.start_ns[analysis.launches.call]
    launched = np.searchsorted(called_ns, (start_ns, end_ns), side="left")
    count = {device: len(rows) for device, rows in rows_by(ops.device).items()}
    return SpanTotals(
        start_ns=start_ns,
        end_ns=end_ns,
        devices=tuple(
            _device_totals(analysis, device, count.get(device, 0), (start_ns, end_ns))
            for device in analysis.busy
        ),
        launch_calls=int(launched[1] - launched[0]),
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel[2], kernel[0]))),
    )


def _device_totals(
    analysis: Analysis, device: int, ops: int, span: tuple[int, int]
) -> DeviceTotals:
    covered = covered_until(analysis.busy[device], np.array(span, dtype=np.int64))
    busy_ns = int(covered[1] - covered[0])
    bounds = np.array(span, dtype=np.int64).reshape(2, 1)
    idle_ns = idle_inside(analysis.idle_of((device,)), Intervals(*bounds))[0].tolist()
    by_class = [(name, ns) for name, ns in zip(GAP_CLASSES, idle_ns, strict=True) if ns]
    return DeviceTotals(
        label=analysis.trace.device_label(device),
        ops=ops,
        busy_ns=busy_ns,
        idle_ns=tuple(sorted(by_class, key=lambda one: -one[1])),
        before_or_after_ns=span[1] - span[0] - busy_ns - sum(idle_ns),
    )
