"""How the prefill gets the matrices of FP8 and INT8 weights: from one launch of our kernel."""

import torch

from decodescope.kernels.host.weights import WeightMatrix
from decodescope.kernels.ops.dequantize_rows import DequantizeRows
from decodescope.variants.model.quantized_weights import Convert, scaled


def weights_on(device: torch.device) -> Convert:
    """The kernel on a GPU; PyTorch on the CPU, where Triton's interpreter would take seconds for
    each matrix. Both give the same bits."""
    return dequantized if device.type == "cuda" else scaled


def dequantized(data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """data * scale in `dtype`, as `scaled`."""
    out = torch.empty(data.shape, dtype=dtype, device=data.device)
    DequantizeRows(WeightMatrix(data, scale), out).launch()
    return out
