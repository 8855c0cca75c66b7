"""Running out of GPU memory, told as one line instead of an allocator's report."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from decodescope.analyzer.errors import EnvironmentLacks

_GIB = 1024**3


@contextmanager
def memory_errors(doing: str, device: str, needed_bytes: int | None = None) -> Iterator[None]:
    """Turn torch's out-of-memory error inside the block into `EnvironmentLacks`.

    `doing` completes "out of GPU memory while ..."; `needed_bytes` is what the whole of it needs,
    where that is known. What is free is read after the failed block's own memory was released.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        error.__traceback__ = None
        raise EnvironmentLacks(_message(doing, device, needed_bytes)) from error


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
