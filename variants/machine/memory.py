"""Running out of GPU memory, told as one line instead of an allocator's report."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from decodescope.analyzer.errors import MissingRequirement

_GIB = 1024**3


@contextmanager
def memory_errors(doing: str, device: str, needed_bytes: int | None = None) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into `MissingRequirement`.

    Besides torch's own, the CUDA libraries and torch.compile report it as other runtime errors.
    `doing` completes "out of GPU memory while ..."; `needed_bytes` is what the whole of it needs,
    where that is known. What is free is read after the failed block's own memory was released.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        # Its frames hold the tensors of the failed block; without them the memory is free again.
        error.__traceback__ = None
        raise MissingRequirement(_message(doing, device, needed_bytes)) from error


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether `error` says that device memory ran out, in whatever words."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    words = str(error).lower()
    return "cuda" in words and ("out of memory" in words or "alloc_failed" in words)


def _message(doing: str, device: str, needed_bytes: int | None) -> str:
    parts = [f"out of GPU memory while {doing}"]
    if needed_bytes is not None:
        parts.append(f"needs about {needed_bytes / _GIB:.1f} GiB")
    if device == "cuda":
        torch.cuda.empty_cache()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        parts.append(f"{free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB are free")
    return (
        ", ".join(parts) + "; try a smaller model, --batch or --context, or end other GPU processes"
    )
