"""How K and V are passed to the kernels: elements, and for float8 a scale for each head.

K[b, h, t] = k_cache[b, h, t] * scales.k[b, h], and V likewise. E4M3 needs scales, because it ends
at 448; E5M2 has the range of float16 and usually goes without. Scales are in device memory: one
captured graph serves every prompt.
"""

from typing import NamedTuple

import torch

from decodescope.kernels.host.checks import check_tensor
from decodescope.kernels.host.weights import largest_value

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class KvScales(NamedTuple):
    """`k` and `v`: float32 [batch, KV heads], contiguous, positive and finite."""

    k: torch.Tensor
    v: torch.Tensor


def check_caches(
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    scales: KvScales | None,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    """Raise `ValueError` unless both caches are contiguous [batch, KV heads, capacity, D] on the
    device, of `dtype` or both of one float8 type, which alone may have scales."""
    stored = k_cache.dtype if k_cache.dtype in FLOAT8 else dtype
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        check_tensor(name, cache, shape, stored, device)
    if scales is None:
        return
    if stored not in FLOAT8:
        raise ValueError(f"scales for a cache of {stored}: only float8 has scales")
    for name, scale in (("k scale", scales.k), ("v scale", scales.v)):
        check_tensor(name, scale, shape[:2], torch.float32, device)


def dense_rows(stored: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Rows [batch, KV heads, ..., D] of a cache with the scales of their heads applied, float64."""
    rows = stored.double()
    return rows if scale is None else rows * _of_rows(scale, rows)


def codes(rows: torch.Tensor, stored: torch.dtype, scale: torch.Tensor | None) -> torch.Tensor:
    """The numbers whose nearest elements of type `stored` a cache holds for `rows` [batch, KV
    heads, ..., D]: float8 has them divided by the scales of their heads, and infinities and others
    beyond its largest value become that. NaN stays NaN."""
    if stored not in FLOAT8:
        return rows
    if scale is not None:
        rows = rows / _of_rows(scale, rows)
    most = largest_value(stored)
    return rows.clamp(-most, most)


def _of_rows(scale: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return scale.to(rows.dtype).reshape(*scale.shape, *[1] * (rows.dim() - 2))
