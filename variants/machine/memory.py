"""Frees device memory, and reports running out of it as one line."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from decodescope.analyzer.errors import MissingRequirement

_GIB = 1024**3


@contextmanager
def memory_errors(doing: str, device: str) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into `MissingRequirement`.

    CUDA libraries and torch.compile report it as runtime errors other than torch's own. `doing`
    completes "out of GPU memory while ...". Free memory is read after the failed block's own memory
    was released.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        # The traceback's frames keep the tensors of the failed block alive.
        error.__traceback__ = None
        raise MissingRequirement(_message(doing, device)) from error


def free_memory(device: str) -> None:
    """Free what dropped steps held: their tensors, CUDA graphs and compiled code."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def _is_out_of_memory(error: RuntimeError) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    words = str(error).lower()
    return "cuda" in words and ("out of memory" in words or "alloc_failed" in words)


def _message(doing: str, device: str) -> str:
    message = f"out of GPU memory while {doing}"
    if device == "cuda":
        torch.cuda.empty_cache()
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        message += f", {free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB are free"
    return f"{message}; try a smaller model, --batch or --context, or end other GPU processes"
