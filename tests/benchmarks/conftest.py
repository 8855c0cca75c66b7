"""Makes the benchmark scripts importable, the small models of the fused steps' tests, and a clock
without a device."""

import os
import sys
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parent.parent
SCRIPTS = TESTS.parent / "benchmarks"

sys.path[:0] = [str(SCRIPTS), str(TESTS / "variants/fused"), str(TESTS / "variants/bench")]

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")

# The scripts are part of a checkout, not of a source distribution.
collect_ignore_glob = [] if SCRIPTS.is_dir() else ["test_*.py"]


@pytest.fixture
def device() -> str:
    """Where models and kernels run: the GPU, or the CPU under the interpreter."""
    return "cuda" if torch.cuda.is_available() else "cpu"
