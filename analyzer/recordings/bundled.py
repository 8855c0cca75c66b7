"""The recordings of real GPU runs that come with the package."""

from pathlib import Path


def bundled_recordings() -> tuple[Path, ...]:
    """Their paths, by name."""
    return tuple(sorted(Path(__file__).parent.glob("*.dsrec")))
