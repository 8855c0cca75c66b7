"""How a matrix becomes FP8 or INT8 weights: narrow elements and one float32 scale for each row.

A row is an output channel, so its scale multiplies the finished sum: W[r, k] ~ data[r, k] scale[r]
with scale[r] = max |W[r]| / L, where L is the format's largest value (448 for E4M3, 57,344 for
E5M2, 127 for INT8). The element is W / scale, rounded to nearest, ties to even.

Sources: FP8 formats, Micikevicius et al. (arXiv 2209.05433) and OCP 8-bit Floating Point
Specification 1.0; scales for each output channel as in LLM.int8(), Dettmers et al.
(arXiv 2208.07339).
"""

from typing import Literal

import torch

NarrowFormat = Literal["fp8_e4m3", "fp8_e5m2", "int8"]

NARROW_DTYPES: dict[NarrowFormat, torch.dtype] = {
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
    "int8": torch.int8,
}

# Activations beside FP8 weights.
FP8_X = torch.float8_e4m3fn

# float32 keeps no more digits of a quotient by a smaller scale. A row below it becomes zeros.
LEAST_SCALE = torch.finfo(torch.float32).tiny


def largest_value(dtype: torch.dtype) -> float:
    """L, the largest magnitude of which a narrow dtype stores both signs."""
    return 127.0 if dtype == torch.int8 else torch.finfo(dtype).max


def quantized_rows(
    matrix: torch.Tensor, format: NarrowFormat, scaled: bool = True
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """`matrix` [rows, columns] as elements of `format` and scales, float32 [rows].

    A row of zeros has scale 1. With `scaled` off there are no scales (None) and every element is
    rounded as it is; values beyond the format's largest one become that one. Takes 8 bytes of
    temporary memory for each element.

    Raises:
        ValueError: not a matrix of floats, a value that is NaN or infinite (names its row), or INT8
            without scales.
    """
    if matrix.dim() != 2 or not matrix.is_floating_point():
        raise ValueError(
            f"{matrix.dtype} {list(matrix.shape)}: must be a matrix of floating-point numbers"
        )
    if format == "int8" and not scaled:
        raise ValueError("int8 without scales: most weights are far below 1 and would become 0")
    dtype = NARROW_DTYPES[format]
    most = largest_value(dtype)
    values = matrix.float()
    largest = values.abs().amax(dim=1)
    if not bool(largest.isfinite().all()):
        row = int((~largest.isfinite()).nonzero()[0])
        raise ValueError(f"row {row} of the weights holds NaN or an infinity")
    scale: torch.Tensor | None = None
    if scaled:
        scale = largest / most
        scale = torch.where(scale < LEAST_SCALE, 1.0, scale)
        # `values` may be the caller's own memory.
        values = values / scale[:, None]
    values = values.clamp(-most, most)
    data = values.round_().to(dtype) if format == "int8" else values.to(dtype)
    return data, scale
