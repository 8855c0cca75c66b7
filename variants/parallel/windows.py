"""The profiled windows of all ranks, one file each, on rank 0."""

from collections.abc import Sequence
from pathlib import Path

from decodescope.analyzer.io.files import write_atomically
from decodescope.variants.parallel.exchange import to_rank_0
from decodescope.variants.parallel.ranks import Ranks


def rank_path(path: Path, rank: int) -> Path:
    """The file of a rank beside `path`: window.rank1.json.gz for window.json.gz."""
    name, dot, ending = path.name.partition(".json")
    return path.with_name(f"{name}.rank{rank}{dot}{ending}")


def rank_files(path: Path, size: int) -> list[Path]:
    """The files of `size` ranks that stand for `path`: itself for one rank."""
    return [path] if size == 1 else [rank_path(path, rank) for rank in range(size)]


def gather_windows(path: Path, ranks: Ranks) -> list[Path]:
    """The files of all ranks on rank 0, none on the others; each has written `path`, which moves.
    They come as bytes, because ranks on other hosts have other files."""
    if ranks.alone:
        return [path]
    windows = to_rank_0(path.read_bytes(), ranks)
    files = rank_files(path, ranks.size) if windows else []
    for file, window in zip(files, windows, strict=True):
        file.write_bytes(window)
    path.unlink()
    return files


def keep_windows(windows: Sequence[Path], trace_path: Path) -> list[Path]:
    """Copy the windows to `trace_path`, several to one file a rank beside it; the files.

    Raises:
        InputError: one cannot be written.
    """
    kept = rank_files(trace_path, len(windows))
    for window, file in zip(windows, kept, strict=True):
        write_atomically(file, window.read_bytes())
    return kept
