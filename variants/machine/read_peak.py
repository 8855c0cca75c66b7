"""Measures the read bandwidth of the current GPU, the yardstick of every bandwidth figure."""

import sys
from importlib.util import find_spec
from itertools import pairwise
from statistics import median

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.machine.read_peak_cache import (
    ReadPeak,
    cache_folder,
    cached_peak,
    keep_peak,
    this_gpu,
    today,
)

BUFFER_BYTES = 4 * 1024**3
RUNS = 12
WARM_UP_RUNS = 3
PROGRAMS_PER_SM = (8, 64, 256)

_L2_MULTIPLE = 8


def measure_read_peak() -> float:
    """Bytes per second at which a kernel that only reads gets through a buffer far above the L2.

    For each number of programs per multiprocessor in `PROGRAMS_PER_SM`, the median of `RUNS` runs
    timed by device events after a warm-up; the best of these medians counts, because which number
    saturates the memory differs between GPUs. The buffer has 4 GiB, or a quarter of the free memory
    where that is less, and is freed at the end. Takes about 0.3 s with the kernel's compilation.

    Raises:
        MissingRequirement: no CUDA device, no triton, or too little free memory to leave the L2.
    """
    if not torch.cuda.is_available():
        raise MissingRequirement("the read peak is measured on a CUDA device, and there is none")
    if find_spec("triton") is None:
        raise MissingRequirement("the read peak needs triton, which is not installed")
    free_bytes, _ = torch.cuda.mem_get_info()
    properties = torch.cuda.get_device_properties(0)
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


def read_peak(device: str) -> ReadPeak | None:
    """This GPU's read peak, as it was measured in the last weeks or else just now.

    None on "cpu" and where it cannot be measured (stderr says why).
    """
    if device != "cuda":
        return None
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


def _bytes_per_s(x: torch.Tensor, programs: int) -> float:
    from decodescope.kernels.ops.read_bandwidth import bytes_moved, partial_sums

    partial = torch.empty(programs, dtype=torch.float32, device=x.device)
    for _ in range(WARM_UP_RUNS):
        partial_sums(x, partial)
    marks = [_timing_event() for _ in range(RUNS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        partial_sums(x, partial)
        mark.record()
    marks[-1].synchronize()
    run_ms: float = median(before.elapsed_time(after) for before, after in pairwise(marks))
    return bytes_moved(x, partial) / (run_ms / 1e3)


def _timing_event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
