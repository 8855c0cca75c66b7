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

    analysis = analyze(load(path))
    timeline = analysis.step_timeline() if analysis.report.steps else None
    names = tuple(short_kernel_name(k.name) for k in analysis.report.kernels[:KERNELS_SHOWN])
    return Window(path, analysis.report, timeline, names, at)
