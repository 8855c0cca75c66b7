"""What a thread does for the app: read and analyse one trace file."""

from pathlib import Path

from decodescope.tui.session import Window

KERNELS_SHOWN = 30


def analyse_file(path: Path, at: float) -> Window:
    """Load and analyse the trace at `path`, announced at monotonic second `at`.

    Raises:
        TraceError: the file is no trace, or too broken.
        OSError: the file cannot be read.
    """
    from decodescope.analyzer import analyze, load
    from decodescope.analyzer.kernel_family import FAMILIES, kernel_family

    analysis = analyze(load(str(path)))
    report = analysis.report
    timeline = analysis.step_timeline() if report.steps else None
    shown = report.kernels[:KERNELS_SHOWN]
    families = tuple(FAMILIES[kernel_family(kernel.name)] for kernel in shown)
    return Window(path, report, timeline, families, at)
