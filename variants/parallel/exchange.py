"""Values that ranks give each other, outside of the model's computations: what rank 0
decides, and their profiled windows, one file each."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist

from decodescope.analyzer.io.files import write_atomically
from decodescope.variants.parallel.place import rank_files
from decodescope.variants.parallel.ranks import Ranks

Value = TypeVar("Value")


def from_rank_0(value: Value, ranks: Ranks) -> Value:
    """The value that rank 0 has, on all ranks; it decides where times or measurements differ."""
    if ranks.alone:
        return value
    values = [value]
    dist.broadcast_object_list(values)
    return values[0]


def gather_windows(path: Path, ranks: Ranks) -> list[Path]:
    """The files of all ranks on rank 0, none on the others; each has written `path`, which moves.
    They come as bytes, because ranks on other hosts have other files."""
    if ranks.alone:
        return [path]
    windows: list[bytes] | None = None if ranks.rank else [b""] * ranks.size
    dist.gather_object(path.read_bytes(), windows)
    path.unlink()
    if windows is None:
        return []
    files = rank_files(path, ranks.size)
    for file, window in zip(files, windows, strict=True):
        file.write_bytes(window)
    return files


def keep_windows(windows: Sequence[Path], trace_path: Path) -> None:
    """Copy the windows to `trace_path`, several to one file a rank beside it.

    Raises:
        InputError: one cannot be written.
    """
    kept = rank_files(trace_path, len(windows))
    for window, file in zip(windows, kept, strict=True):
        write_atomically(file, window.read_bytes())
