"""The recordings of real GPU runs that come with the package."""

from pathlib import Path


def bundled_recordings() -> tuple[Path, ...]:
    """Their paths, by name: `fused+graph` comes before `fused+graph+int8`."""
    found = Path(__file__).parent.glob("*.dsrec")
    return tuple(sorted(found, key=lambda path: path.stem))
