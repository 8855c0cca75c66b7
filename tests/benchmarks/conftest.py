"""Benchmark scripts run in Triton's interpreter where there is no GPU."""

import os
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).parents[2] / "benchmarks"

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")

# The scripts are part of a checkout, not of a source distribution.
collect_ignore_glob = [] if SCRIPTS.is_dir() else ["test_*.py"]


@pytest.fixture
def device() -> str:
    """Where models and kernels run: the GPU, or the CPU under the interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"
