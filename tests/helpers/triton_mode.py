"""Without a GPU, kernels run in Triton's interpreter. Import this before anything of Triton."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

pytest.importorskip("triton")
