"""Windows of graph replays that lack no op."""

from collections.abc import Callable
from pathlib import Path

from decodescope.analyzer import analyze, load
from decodescope.analyzer.reports.analysis import Analysis

_TIMES = 5


def whole_window(take: Callable[[], object], path: Path) -> Analysis:
    """The window that `take` writes to `path`, taken again, a few times at most, while its steps
    differ: CUPTI of CUDA 12.6 Update 2 to 13.0 loses ops at the head of a window, the more the more
    processes share the GPU."""
    for _ in range(_TIMES):
        take()
        analysis = analyze(load(path))
        report = analysis.report
        alike = len({step.gpu_ops for step in report.steps}) == 1
        if alike and report.launches.graph_launches == len(report.steps):
            break
    return analysis
