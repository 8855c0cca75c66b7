"""The error of a result against its float64 reference."""

import torch

# Half the distance of neighbouring elements: as a share of the value, and the least.
_HALF_STEPS = {
    torch.float8_e4m3fn: (2.0**-4, 2.0**-10),
    torch.float8_e5m2: (2.0**-3, 2.0**-17),
}


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """|out - reference| ÷ |reference| (Euclidean, float64); infinite if it is not finite.

    Of float8 results (new rows of K and V), only what is over half the distance of two elements.
    """
    reference = reference.double()
    difference = (out.double() - reference).abs()
    if out.dtype in _HALF_STEPS:
        share, least = _HALF_STEPS[out.dtype]
        difference = (difference - (share * reference.abs()).clamp(min=least)).clamp(min=0.0)
    error = difference.norm() / reference.norm()
    return float(error) if bool(error.isfinite()) else float("inf")
