"""Free memory, freeing it, and errors of running out of it as one line."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import CDLL
from pathlib import Path

import torch

from decodescope.analyzer.errors import MissingRequirement

_GIB = 1024**3


@contextmanager
def memory_errors(doing: str, device: str) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into `MissingRequirement`.

    CUDA libraries and torch.compile report it as runtime errors other than torch's own, and so does
    torch's allocator on the CPU. `doing` completes "out of GPU memory while ...". Free memory is
    read after the failed block's own memory was released.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        # The traceback's frames keep the tensors of the failed block alive.
        error.__traceback__ = None
        raise MissingRequirement(_message(doing, device, _is_on_host(error))) from error


def free_gpu_bytes() -> int:
    """Bytes of GPU memory that torch can still take: free ones and those it keeps for itself."""
    free_bytes: int = torch.cuda.mem_get_info()[0]
    return free_bytes + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()


def free_host_bytes(root: Path = Path("/")) -> int | None:
    """Bytes of memory that a process can take without swapping; None where the system has no /proc.

    The control group that a container or a batch system sets may allow less than the machine has.
    """
    free_bytes = _free_on_machine(root / "proc/meminfo")
    in_group = _free_in_group(root)
    if free_bytes is None or in_group is None:
        return free_bytes
    return min(free_bytes, in_group)


def _free_on_machine(meminfo: Path) -> int | None:
    with suppress(OSError):
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _free_in_group(root: Path) -> int | None:
    """The limit of this process's control group (version 2) without what its processes hold."""
    with suppress(OSError, ValueError):
        path = (root / "proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        group = root / "sys/fs/cgroup" / path
        limit = int((group / "memory.max").read_text())
        held = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return max(0, limit - int(held.get("anon", 0)))
    return None


def free_memory(device: str) -> None:
    """Free what dropped steps held: their tensors, CUDA graphs and compiled code."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    return_freed(device)


def return_freed(device: str) -> None:
    """Return to the system what allocators of `device` keep of freed tensors.

    On "cpu" these are pages between blocks in use. glibc places an aligned tensor in the hole that
    one of its size left only if the bytes beside it are free too; otherwise the heap grows.
    """
    if device == "cuda":
        torch.cuda.empty_cache()
    elif trim := getattr(CDLL(None), "malloc_trim", None):
        trim(0)


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    if isinstance(error, torch.OutOfMemoryError) or _is_on_host(error):
        return True
    words = str(error).lower()
    return "cuda" in words and ("out of memory" in words or "alloc_failed" in words)


def _is_on_host(error: RuntimeError | MemoryError) -> bool:
    return isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error)


def _message(doing: str, device: str, on_host: bool) -> str:
    message = f"out of {'' if on_host else 'GPU '}memory while {doing}"
    if device == "cuda" and not on_host:
        torch.cuda.empty_cache()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        message += f", {free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB are free"
    processes = "processes" if on_host else "GPU processes"
    return f"{message}; try a smaller model, --batch or --context, or end other {processes}"
