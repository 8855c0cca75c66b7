"""Makes the helper modules of this folder importable by its tests."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")


@pytest.fixture
def device() -> str:
    """Where models and kernels run: the GPU, or the CPU under the interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"
