"""Small models and an interpreted Triton for the kernel benchmarks."""

import os
import sys
from pathlib import Path

import pytest
import torch

# The folder's own helpers, and the small models of the fused steps' tests.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "fused")]

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")


@pytest.fixture
def device() -> str:
    """Where kernels run: the GPU, or the CPU under the interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"
