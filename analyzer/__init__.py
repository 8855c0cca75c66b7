"""What a trace says: readers, timeline arithmetic, gaps, launches, reports and exporters.

`load(path)` reads a trace file, `analyze(trace)` computes every figure about it; both are imported
on first use, so that the plain structures of this package stay cheap to import.
Nothing here but `decodescope.analyzer.capture` imports torch: a laptop without a GPU opens any
recording.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decodescope.analyzer.analysis import Analysis, analyze
    from decodescope.analyzer.reading import load

__all__ = ["Analysis", "analyze", "load"]


def __getattr__(name: str) -> object:
    if name == "load":
        from decodescope.analyzer.reading import load

        return load
    if name in ("Analysis", "analyze"):
        from decodescope.analyzer import analysis

        return getattr(analysis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
