"""The read bandwidth of the current GPU, the reference for every bandwidth figure.

It is measured once a month for each GPU and kept in the user's cache folder.
"""

import math
import sys
from datetime import UTC, date, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch
from msgspec import Struct

import decodescope
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.io.cache_folder import cache_folder, keep_measured, kept_measured
from decodescope.variants.machine.environment import driver_version

BUFFER_BYTES = 4 * 1024**3
RUNS = 12
PROGRAMS_PER_SM = (8, 64, 256)
MAX_AGE_DAYS = 30

_L2_MULTIPLE = 8


class ReadPeak(Struct, frozen=True):
    """Bytes per second of a kernel that only reads, and the day it was measured (ISO 8601)."""

    bytes_per_s: float
    measured_at: str


class GpuIdentity(Struct, frozen=True):
    """The GPU and versions that a measured peak is valid for; others measure again."""

    name: str
    uuid: str
    driver: str | None
    decodescope_version: str


class _Entry(Struct, frozen=True):
    gpu: GpuIdentity
    peak: ReadPeak


def read_peak() -> ReadPeak | None:
    """This GPU's read peak: the cached one, or a new measurement that is then cached. None if it
    cannot be measured (stderr says why)."""
    gpu, folder = this_gpu(), cache_folder()
    known = cached_peak(gpu, folder, today())
    if known is not None:
        return known
    try:
        peak = ReadPeak(measure_read_peak(), today().isoformat())
    except (MissingRequirement, ImportError) as error:
        sys.stderr.write(f"read peak not measured: {error}\n")
        return None
    keep_peak(gpu, peak, folder)
    return peak


def measure_read_peak() -> float:
    """Bytes per second of a kernel that only reads a buffer far larger than the L2 cache.

    For each number of programs per multiprocessor in `PROGRAMS_PER_SM`, the median of `RUNS` runs
    timed with device events after a warm-up; the result is the best of these medians, because the
    number of programs that saturates the memory differs between GPUs. The buffer has 4 GiB, or a
    quarter of the free memory if that is less, and is freed at the end. Takes about 0.3 s including
    the compilation of the kernel. Needs a CUDA device.

    Raises:
        MissingRequirement: no Triton, or too little free memory to exceed the L2.
    """
    if find_spec("triton") is None:
        raise MissingRequirement("the read peak needs triton, which is not installed")
    free_bytes, _ = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties()
    size_bytes = min(BUFFER_BYTES, free_bytes // 4)
    if size_bytes < _L2_MULTIPLE * properties.L2_cache_size:
        raise MissingRequirement(
            f"the read peak needs a buffer far above the L2 cache, but only {free_bytes} bytes of "
            "GPU memory are free; end other GPU processes"
        )
    x = torch.ones(size_bytes // 4, dtype=torch.float32, device="cuda")
    try:
        counts = (properties.multi_processor_count * per_sm for per_sm in PROGRAMS_PER_SM)
        return max(_bytes_per_s(x, programs) for programs in counts)
    finally:
        del x
        torch.cuda.empty_cache()


def this_gpu() -> GpuIdentity:
    """The first CUDA device; needs a CUDA device."""
    properties = torch.cuda.get_device_properties()
    return GpuIdentity(
        name=properties.name,
        uuid=str(properties.uuid),
        driver=driver_version(),
        decodescope_version=decodescope.__version__,
    )


def today() -> date:
    return datetime.now(UTC).date()


def cached_peak(gpu: GpuIdentity, folder: Path, day: date) -> ReadPeak | None:
    """The peak measured on `gpu` at most `MAX_AGE_DAYS` before `day`, None if there is none.

    A file that is damaged, or belongs to another GPU, driver or version, is ignored.
    """
    try:
        entry = kept_measured(_path(gpu, folder), _Entry)
        age_days = (day - date.fromisoformat(entry.peak.measured_at)).days
    except (OSError, ValueError):
        return None
    usable = math.isfinite(entry.peak.bytes_per_s) and entry.peak.bytes_per_s > 0
    return entry.peak if usable and entry.gpu == gpu and 0 <= age_days <= MAX_AGE_DAYS else None


def keep_peak(gpu: GpuIdentity, peak: ReadPeak, folder: Path) -> None:
    """Write `peak` for later runs; if that fails, stderr says so and they measure again."""
    keep_measured(_path(gpu, folder), _Entry(gpu, peak), "read peak")


def _path(gpu: GpuIdentity, folder: Path) -> Path:
    return folder / f"read-peak-{gpu.uuid}.json"


def _bytes_per_s(x: torch.Tensor, programs: int) -> float:
    # Imported late: the kernel needs Triton, which is optional, and a CPU run times nothing here.
    from decodescope.kernels.ops.read_bandwidth import bytes_moved, partial_sums
    from decodescope.variants.machine.clock import DeviceClock

    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    run_ns = median(DeviceClock().each_ns(lambda: partial_sums(x, partial), RUNS))
    return bytes_moved(x, partial) / (run_ns / 1e9)
