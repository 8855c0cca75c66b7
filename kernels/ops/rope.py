"""Rotary position embedding of one token's queries and keys, in place, in one launch.

Bytes moved: q and k read and written, one row of each table: 2 * batch * (Hq + Hkv) * D * itemsize
+ 4 * D.

The elements of a pair are half a head apart, as in the checkpoints of Hugging Face's Llama, Qwen
and Mistral, half of the head's rotated part (Phi-4-mini), or neighbours (GLM, Cohere) as in the
source: RoFormer (arXiv 2104.09864).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.head_rows import load_pairs, rotated, store_pairs
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_position, check_tensor
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch


@dataclass(frozen=True, slots=True)
class RopeTable:
    """cos[p, i] and sin[p, i] of position p and pair i, both float32 [positions, head_dim / 2].

    A model's attention scaling (YaRN, LongRoPE) is multiplied into both. Pair i consists of the
    elements i and i + `distance` for i below it, and of 2 i and 2 i + 1 at a distance of 1 (0: half
    a head). Where the first 2 `distance` elements are not the whole head, the pairs of the others
    have cos 1 and sin 0.

    Raises:
        ValueError: tables that are not two contiguous float32 matrices of one shape and device, or
            a distance beyond half a head.
    """

    cos: torch.Tensor
    sin: torch.Tensor
    distance: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance", self.distance or self.cos.shape[-1])
        if self.cos.dim() != 2 or 0 in self.cos.shape:
            raise ValueError(
                f"cos is {list(self.cos.shape)}: must be [positions, head_dim / 2], not empty"
            )
        shape = (int(self.cos.shape[0]), int(self.cos.shape[1]))
        check_tensor("cos", self.cos, shape, torch.float32, self.cos.device)
        check_tensor("sin", self.sin, shape, torch.float32, self.cos.device)
        if not 1 <= self.distance <= shape[1]:
            raise ValueError(f"a distance of {self.distance}: must be 1 to {shape[1]}, half a head")

    @property
    def positions(self) -> int:
        return int(self.cos.shape[0])

    @property
    def head_dim(self) -> int:
        return 2 * int(self.cos.shape[1])


def rotated_reference(x: torch.Tensor, table: RopeTable, position: int) -> torch.Tensor:
    """Every head of x [..., D] rotated to `position`, in float64.

    out[low] = x[low] cos - x[high] sin, out[high] = x[high] cos + x[low] sin for each pair.
    """
    cos, sin = table.cos[position].double(), table.sin[position].double()
    order = torch.arange(x.shape[-1], device=x.device)
    if table.distance == 1:
        pairs = order.view(-1, 2).T
    else:
        turned, rest = order[: 2 * table.distance], order[2 * table.distance :]
        pairs = torch.cat((turned.view(2, -1), rest.view(2, -1)), dim=1)
    low, high = (x.double()[..., elements] for elements in pairs)
    out = torch.empty_like(x, dtype=torch.float64)
    out[..., pairs[0]] = low * cos - high * sin
    out[..., pairs[1]] = high * cos + low * sin
    return out


@triton.jit
def _rotate_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    positions,
    q_heads,
    q_batch_stride,
    q_head_stride,
    k_batch_stride,
    k_head_stride,
    HALF: tl.constexpr,
    DISTANCE: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    head = tl.program_id(0)
    sequence = tl.program_id(1).to(tl.int64)
    position = tl.load(position_ptr)
    known = (position >= 0) & (position < positions)
    row = tl.where(known, position, 0).to(tl.int64) * HALF
    pair = tl.arange(0, BLOCK)
    mask = pair < HALF
    cos = tl.load(cos_ptr + row + pair, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + row + pair, mask=mask, other=0.0)
    wait_for_previous(PDL)
    if head < q_heads:
        head_ptr = q_ptr + sequence * q_batch_stride + head * q_head_stride
    else:
        head_ptr = k_ptr + sequence * k_batch_stride + (head - q_heads) * k_head_stride
    low, high = load_pairs(head_ptr, pair, mask, 2 * HALF, DISTANCE)
    if known:
        low, high = rotated(low, high, cos, sin)
        store_pairs(head_ptr, pair, low, high, mask, 2 * HALF, DISTANCE)


@dataclass(frozen=True, slots=True)
class Rotate(KernelOperation):
    """Rotate q and k to `position` in place, as `rotated_reference`; computed in float32.

    q [batch, Hq, D] and k [batch, Hkv, D] of one dtype; batch and heads may have any stride.
    position int32 [1] on the device. At a position outside the table nothing changes.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; a table for another head_dim.
    """

    q: torch.Tensor
    k: torch.Tensor
    rope: RopeTable
    position: torch.Tensor

    def launch(self, pdl: bool = False) -> Launch:
        q, k, rope = self.q, self.k, self.rope
        if q.dim() != 3 or k.dim() != 3:
            raise ValueError(
                f"q {list(q.shape)}, k {list(k.shape)}: must be [batch, heads, head_dim]"
            )
        batch, q_heads, head_dim = (int(size) for size in q.shape)
        if rope.head_dim != head_dim:
            raise ValueError(f"q of head_dim {head_dim}: the table rotates {rope.head_dim}")
        kv_heads = int(k.shape[1])
        check_float("q", q)
        for name, rows, heads in (("q", q, q_heads), ("k", k, kv_heads)):
            shape = (batch, heads, head_dim)
            check_tensor(name, rows, shape, q.dtype, rope.cos.device, strided=True)
        check_position(self.position, q.device)
        return launch(
            _rotate_kernel,
            (q_heads + kv_heads, batch),
            q,
            k,
            rope.cos,
            rope.sin,
            self.position,
            rope.positions,
            q_heads,
            *q.stride()[:2],
            *k.stride()[:2],
            HALF=head_dim // 2,
            DISTANCE=rope.distance,
            BLOCK=triton.next_power_of_2(head_dim // 2),
            PDL=pdl,
            num_warps=1,
        )

    def inputs(self, position: int) -> Tensors:
        return self.rope.cos[position], self.rope.sin[position]

    def outputs(self, position: int) -> Tensors:
        return ()

    @property
    def updated(self) -> Tensors:
        return self.q, self.k

    def reference(self, position: int) -> Tensors:
        return tuple(rotated_reference(x, self.rope, position) for x in self.updated)
