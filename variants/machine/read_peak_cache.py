"""Keeps a GPU's measured read peak between runs, in the user's cache folder."""

import math
import sys
from datetime import UTC, date, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from platformdirs import user_cache_path

import decodescope
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.files import write_atomically
from decodescope.variants.machine.environment import driver_version

MAX_AGE_DAYS = 30


class ReadPeak(Struct, frozen=True):
    """Bytes per second that a kernel read which does nothing else, and on which day (ISO 8601)."""

    bytes_per_s: float
    measured_at: str


class GpuIdentity(Struct, frozen=True):
    """One GPU as it is driven now: another card, driver or decodescope measures again."""

    name: str
    uuid: str
    driver: str | None
    decodescope_version: str


class _Entry(Struct, frozen=True):
    gpu: GpuIdentity
    peak: ReadPeak


def this_gpu() -> GpuIdentity:
    """The first CUDA device; needs torch and a CUDA device."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return GpuIdentity(
        name=properties.name,
        uuid=str(properties.uuid),
        driver=driver_version(),
        decodescope_version=decodescope.__version__,
    )


def cache_folder() -> Path:
    """Where peaks are kept unless a caller says otherwise."""
    return user_cache_path("decodescope")


def today() -> date:
    """The day in UTC."""
    return datetime.now(UTC).date()


def cached_peak(gpu: GpuIdentity, folder: Path, day: date) -> ReadPeak | None:
    """What was measured on `gpu` at most `MAX_AGE_DAYS` before `day`; None for lack of it.

    A file that is damaged, or of another GPU, driver or version, counts as none.
    """
    try:
        entry = msgspec.json.decode(_path(gpu, folder).read_bytes(), type=_Entry)
        age_days = (day - date.fromisoformat(entry.peak.measured_at)).days
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    usable = math.isfinite(entry.peak.bytes_per_s) and entry.peak.bytes_per_s > 0
    return entry.peak if usable and entry.gpu == gpu and 0 <= age_days <= MAX_AGE_DAYS else None


def keep_peak(gpu: GpuIdentity, peak: ReadPeak, folder: Path) -> None:
    """Write `peak` for later runs; where that fails, stderr says so and they measure again."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(_path(gpu, folder), msgspec.json.encode(_Entry(gpu, peak)))
    except (OSError, InputError) as error:
        sys.stderr.write(f"read peak not kept for later runs: {error}\n")


def _path(gpu: GpuIdentity, folder: Path) -> Path:
    return folder / f"read-peak-{gpu.uuid}.json"
