"""Trace analysis: readers, timelines, attribution, rooflines, reports and exporters.

`load(path)` reads a trace file, `analyze(trace)` computes all figures about it, and
`compare(base, other)` lists the changes between two reports; docs/api.md has examples. All are
imported on first use, so that the plain structures of this package stay cheap to import. Only
`decodescope.analyzer.capture.profiler_session` imports torch: a laptop without a GPU opens any
recording.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.analyzer.comparing.diff import diff_reports as compare
    from decodescope.analyzer.readers.reading import load
    from decodescope.analyzer.reports.analysis import Analysis, analyze
    from decodescope.analyzer.reports.rank_analysis import analyze_ranks
    from decodescope.analyzer.reports.user_facts import Given

__all__ = ["Analysis", "Given", "analyze", "analyze_ranks", "compare", "load"]

_HOMES = {
    "Analysis": ("reports.analysis", "Analysis"),
    "Given": ("reports.user_facts", "Given"),
    "analyze": ("reports.analysis", "analyze"),
    "analyze_ranks": ("reports.rank_analysis", "analyze_ranks"),
    "compare": ("comparing.diff", "diff_reports"),
    "load": ("readers.reading", "load"),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, attribute = _HOMES[name]
    return getattr(import_module(f"{__name__}.{home}"), attribute)
