"""The launch of kernels that give activations as codes with a scale for each token, which one
program has: `quantize_rows.py`, `rms_norm_integers.py` and `rms_norm_pairs.py`."""

from typing import Any

import torch
import triton

from decodescope.kernels.host.checks import check_apart, check_floats, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.product import norm_arguments
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import check_norm_weight, row_warps


class ScaledRows(KernelOperation):
    """Codes `out` [rows, features] of x [rows, features], a dtype of the kernels, with a float32
    `scale` [rows]; all contiguous."""

    __slots__ = ()

    scale: torch.Tensor

    def launched(self, kernel: Any, norm: Norm | None, codes: torch.dtype, pdl: bool) -> Launch:
        """Launch `kernel`, which applies `norm` and writes codes of this dtype.

        Raises:
            ValueError: other shapes, dtypes, layouts or devices than the class documents; an output
                in x's memory; more than `rms_norm.MAX_FEATURES` features.
        """
        x, device = self.x, self.x.device
        if x.dim() != 2:
            raise ValueError(f"x {list(x.shape)}: must be [rows, features]")
        rows, features = int(x.shape[0]), int(x.shape[1])
        check_norm_weight(norm, features, device)
        check_floats("x", x, (rows, features), device)
        check_tensor("out", self.out, (rows, features), codes, device)
        check_tensor("scale", self.scale, (rows,), torch.float32, device)
        check_apart("out", self.out, x)
        check_apart("scale", self.scale, x)
        # `rms_norm_pairs.py` converts four numbers at once.
        block = max(4, triton.next_power_of_2(features))
        g, eps = norm_arguments(norm)
        operands = x, g, self.out, self.scale, features, eps
        return launch(kernel, (rows,), *operands, BLOCK=block, PDL=pdl, num_warps=row_warps(block))

    def outputs(self, position: int) -> Tensors:
        return self.out, self.scale
