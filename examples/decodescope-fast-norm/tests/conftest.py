"""The tests run on the GPU; without one, in Triton's interpreter."""

import os

import pytest
import torch

# Triton reads this when kernels are imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> str:
    """Where the kernel runs."""
    return "cuda" if torch.cuda.is_available() else "cpu"
