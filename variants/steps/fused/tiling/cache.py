"""Keeps the tiles measured on this machine between runs, in the user's cache folder."""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from decodescope.variants.machine.cache_folder import keep_measured
from decodescope.variants.steps.fused.tiling.table import TileEntry, updated
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu


class _Kept(Struct, frozen=True):
    gpu: TargetGpu
    entries: tuple[TileEntry, ...]


def cached_entries(gpu: TargetGpu, folder: Path) -> tuple[TileEntry, ...]:
    """What was measured on this kind of GPU with this driver, Triton and decodescope.

    A file from other versions is ignored, and so is a damaged one, with a line on stderr.
    """
    path = _path(gpu, folder)
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=_Kept)
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        sys.stderr.write(f"measured tiles ignored: {path}: {error}\n")
        return ()
    return kept.entries if kept.gpu == gpu else ()


def keep_tiles(gpu: TargetGpu, measured: Iterable[TileEntry], folder: Path) -> Path | None:
    """Add tiles for later runs; returns the file that keeps them.

    If that fails, writes the reason to stderr and returns None.
    """
    path = _path(gpu, folder)
    entries = updated(cached_entries(gpu, folder), measured)
    return path if keep_measured(path, _Kept(gpu, entries), "measured tiles") else None


def _path(gpu: TargetGpu, folder: Path) -> Path:
    return folder / f"tiles-{re.sub(r'[^a-z0-9]+', '-', gpu.name.lower())}.json"
