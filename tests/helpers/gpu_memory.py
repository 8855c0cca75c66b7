"""Memory of a GPU that several processes of pytest-xdist share."""

import fcntl
import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_KEPT_BYTES = 1 << 30


def give_back() -> None:
    """Give memory that no tensor needs any more back to the GPU, unless it is little."""
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized() and torch.cuda.memory_reserved() > _KEPT_BYTES:
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def alone() -> Iterator[None]:
    """A test that needs half of a GPU's memory, while no other process runs one."""
    name = f"decodescope-large-gpu-test-{os.getuid()}"
    with Path(tempfile.gettempdir(), name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        give_back()
