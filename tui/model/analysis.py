"""What a thread does for the app: read and analyse one trace file, or those of several ranks."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import InputError
from decodescope.tui.model.session import Window

if TYPE_CHECKING:
    from decodescope.analyzer import Analysis

KERNELS_SHOWN = 30


def analyse_files(paths: Sequence[Path], at: float) -> Window:
    """Load and analyse the trace at `paths`, announced at monotonic second `at`; of several files
    the merged one.

    Raises:
        TraceError: a file is no trace, or too broken.
        InputError: several files that cannot be merged.
        OSError: the file cannot be read.
    """
    from decodescope.analyzer.timing.op_families import FAMILIES, kernel_family

    analysis = _analysis(paths)
    report = analysis.report
    timeline = analysis.step_timeline() if report.steps else None
    shown = report.kernels[:KERNELS_SHOWN]
    families = tuple(FAMILIES[kernel_family(kernel.name)] for kernel in shown)
    return Window(paths[0], report, timeline, families, at)


def _analysis(paths: Sequence[Path]) -> "Analysis":
    from decodescope.analyzer import analyze, analyze_ranks, load

    if len(paths) == 1:
        return analyze(load(paths[0]))
    ranks = analyze_ranks(paths)
    if ranks.merged is None:
        reasons = "; ".join(finding.message for finding in ranks.report.findings)
        raise InputError(f"the files cannot be merged: {reasons}")
    return ranks.merged
