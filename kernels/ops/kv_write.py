"""k_cache[position] = k and v_cache[position] = v: one token's keys and values into the KV cache.

Bytes moved: k and v read and written, each in its own type, and scales. The position comes from
device memory, so one captured graph serves every position.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.head_rows import inverse_scale
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.kv_cache import KvScales, check_caches, codes
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch


def kv_write_reference(
    rows: torch.Tensor, cache: torch.Tensor, position: int, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """`cache` [batch, Hkv, capacity, D] with `codes` of `rows` [batch, Hkv, D] at `position`."""
    written = cache.clone()
    if 0 <= position < cache.shape[2]:
        written[:, :, position] = codes(rows.float(), cache.dtype, scale)
    return written


@triton.jit
def _kv_write_kernel(
    k_ptr,
    v_ptr,
    k_cache_ptr,
    v_cache_ptr,
    k_scale_ptr,
    v_scale_ptr,
    position_ptr,
    capacity,
    k_batch_stride,
    k_head_stride,
    v_batch_stride,
    v_head_stride,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    head = tl.program_id(0).to(tl.int64)
    sequence = tl.program_id(1).to(tl.int64)
    position = tl.load(position_ptr)
    fits = (position >= 0) & (position < capacity)
    lane = tl.arange(0, BLOCK)
    mask = lane < D
    cache_head = sequence * tl.num_programs(0) + head
    k_inverse = inverse_scale(k_scale_ptr, cache_head, True)
    v_inverse = inverse_scale(v_scale_ptr, cache_head, True)
    wait_for_previous(PDL)
    k = tl.load(k_ptr + sequence * k_batch_stride + head * k_head_stride + lane, mask=mask)
    v = tl.load(v_ptr + sequence * v_batch_stride + head * v_head_stride + lane, mask=mask)
    stored: tl.constexpr = k_cache_ptr.dtype.element_ty
    if stored != k.dtype:
        k = rounded(k.to(tl.float32) * k_inverse, stored)
        v = rounded(v.to(tl.float32) * v_inverse, stored)
    if fits:
        row = cache_head * capacity + position
        tl.store(k_cache_ptr + row * D + lane, k, mask=mask)
        tl.store(v_cache_ptr + row * D + lane, v, mask=mask)


@dataclass(frozen=True, slots=True)
class KvWrite(KernelOperation):
    """k_cache[b, h, position] = k[b, h], and v likewise; outside the cache nothing is written.

    k, v [batch, Hkv, D]; batch and heads may have any stride. Caches [batch, Hkv, capacity, D],
    contiguous; all of one dtype, or the caches of float8 (kv_cache.py: divided by `scales`,
    rounded, saturating). position int32 [1] on the device.
    """

    k: torch.Tensor
    v: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    position: torch.Tensor
    scales: KvScales | None = None

    def launch(self, pdl: bool = False) -> Launch:
        k, v, k_cache, v_cache = self.k, self.v, self.k_cache, self.v_cache
        if k.dim() != 3 or k_cache.dim() != 4:
            raise ValueError(
                f"k {list(k.shape)}, k_cache {list(k_cache.shape)}: must be [batch, kv_heads, D] "
                "and [batch, kv_heads, capacity, D]"
            )
        batch, kv_heads, head_dim = (int(size) for size in k.shape)
        capacity = int(k_cache.shape[2])
        check_float("k", k)
        for name, rows in (("k", k), ("v", v)):
            check_tensor(name, rows, (batch, kv_heads, head_dim), k.dtype, k.device, strided=True)
        caches, shape = (k_cache, v_cache, self.scales), (batch, kv_heads, capacity, head_dim)
        check_caches(*caches, shape, k.dtype, k.device)
        check_position(self.position, k.device)
        return launch(
            _kv_write_kernel,
            (kv_heads, batch),
            k,
            v,
            k_cache,
            v_cache,
            *(self.scales or (None, None)),
            self.position,
            capacity,
            *k.stride()[:2],
            *v.stride()[:2],
            D=head_dim,
            BLOCK=triton.next_power_of_2(head_dim),
            PDL=pdl,
            num_warps=1,
        )

    def inputs(self, position: int) -> Tensors:
        return self.k, self.v, *(self.scales or ())

    def outputs(self, position: int) -> Tensors:
        return self.k_cache[:, :, position], self.v_cache[:, :, position]

    def reference(self, position: int) -> Tensors:
        rows = zip((self.k, self.v), (self.k_cache, self.v_cache), strict=True)
        written = (
            kv_write_reference(*row_and_cache, position, scale)
            for row_and_cache, scale in zip(rows, self.scales or (None, None), strict=True)
        )
        return tuple(cache[:, :, position] for cache in written)
