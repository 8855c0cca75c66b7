"""Norm, Q/K/V projections (+ bias, + QK-norm), RoPE and the write into the KV cache: one launch.

Bytes moved: the projections' weights once, x and the norm's weight once, q, the new K and V rows
once; with QK-norm also 8 * batch bytes for each row of Q and K, through the workspace. The seven or
more launches that it replaces write and read all of them several times.

Rotation turns pairs of a head's elements (`RopeTable.distance`), so a program has both rows of its
pairs: its tile's rows alternate between the two. With QK-norm a head's
statistic needs all its rows, but a program per head would leave most multiprocessors idle: programs
write their raw rows to the workspace, and the last of a head normalises, rotates and stores it. If
one norm covers all heads of Q, and one all of K, the last of Q and the last of K do that (batch 1).
Where V is K before its norm and rotation, its programs read K's rows again, from the L2 cache.

Sources: RoFormer (arXiv 2104.09864); QK-norm as in Qwen3 and OLMo 2 (transformers,
modeling_qwen3.py and modeling_olmo2.py).
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device import vector_product
from decodescope.kernels.device.head_rows import (
    head_rows,
    inverse_scales,
    program_partners,
    rotated,
    store_head,
    store_normed_head,
    store_normed_together,
    store_pairs,
)
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.device.weight_rows import scale_and_bias
from decodescope.kernels.host.checks import (
    check_apart,
    check_floats,
    check_output,
    check_position,
    check_tensor,
)
from decodescope.kernels.host.kv_cache import KvScales, check_caches, codes
from decodescope.kernels.host.operation import Launch, Tensors, parameters
from decodescope.kernels.host.product import NormedProduct
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix
from decodescope.kernels.host.workspace import Workspace, split_sizes
from decodescope.kernels.ops.linear import linear_reference
from decodescope.kernels.ops.norm_qkv_rope_batched import _norm_qkv_rope_batched_kernel
from decodescope.kernels.ops.rms_norm import rms_norm_reference
from decodescope.kernels.ops.rope import RopeTable, rotated_reference


def norm_qkv_rope_reference(
    x: torch.Tensor,
    norm: Norm | None,
    qkv: WeightMatrix,
    rope: RopeTable,
    position: int,
    heads: int,
    kv_heads: int,
    qk_norm: QkNorm | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q [batch, heads, D] and the new rows of K and V [batch, kv_heads, D], in float64. V is Wk n
    where the matrix has no rows of V."""
    every = linear_reference(x, qkv, norm).view(x.shape[0], -1, rope.head_dim)
    first_v = every.shape[1] - kv_heads
    q, k, v = every[:, :heads], every[:, heads : heads + kv_heads], every[:, first_v:]
    if qk_norm is not None:
        ones = torch.ones(rope.head_dim, device=x.device)
        weights = qk_norm.q_weight, qk_norm.k_weight, ones if qk_norm.norms_v else None
        q, k, v = (
            one if weight is None else _normed_heads(one, Norm(weight, qk_norm.eps))
            for one, weight in zip((q, k, v), weights, strict=True)
        )
    return rotated_reference(q, rope, position), rotated_reference(k, rope, position), v


def _normed_heads(rows: torch.Tensor, norm: Norm) -> torch.Tensor:
    """Each head of rows [batch, heads, D] normed, or all together, as the weight is long."""
    size = len(norm.weight)
    together = rows.reshape(len(rows), rows[0].numel() // size, size)
    return rms_norm_reference(together, norm).view(rows.shape)


@triton.jit
def _norm_qkv_rope_kernel(
    x_ptr,
    x_scale_ptr,
    g_ptr,
    w_ptr,
    scale_ptr,
    bias_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    q_norm_ptr,
    k_norm_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    k_scale_ptr,
    v_scale_ptr,
    raw_ptr,
    counter_ptr,
    eps,
    qk_eps,
    capacity,
    table_rows,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    MATRIX_HEADS: tl.constexpr,
    NORMED_HEADS: tl.constexpr,
    D: tl.constexpr,
    DISTANCE: tl.constexpr,
    K: tl.constexpr,
    LAYOUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    AHEAD: tl.constexpr,
    HEADS_BLOCK: tl.constexpr,
    HALF_BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    PAIRS: tl.constexpr = ROWS // 2
    CHUNKS: tl.constexpr = (D // 2 + PAIRS - 1) // PAIRS
    head = tl.program_id(0) // CHUNKS
    first = (tl.program_id(0) % CHUNKS) * PAIRS
    pairs = first + tl.arange(0, PAIRS)
    rotates = head < HEADS + KV_HEADS
    matrix_head = head
    if MATRIX_HEADS < HEADS + 2 * KV_HEADS:
        # Beyond the matrix, V is K.
        matrix_head = tl.where(head < MATRIX_HEADS, head, head - KV_HEADS)
    w_ptr += matrix_head.to(tl.int64) * (D * LAYOUT[0])
    w_ptr, inside, rows = program_partners(w_ptr, first, D, LAYOUT[0], ROWS, DISTANCE)
    blocks = vector_product.first_blocks(w_ptr, inside, g_ptr, 0, K, BLOCK, 1, AHEAD, LAYOUT)
    scale, bias = scale_and_bias(scale_ptr, bias_ptr, matrix_head * D + rows, None)
    position = tl.load(position_ptr)
    wait_for_previous(PDL)
    # Behind the wait: before it, what needs the position would hold up the loads of weights.
    fits = (position >= 0) & (position < capacity)
    row = tl.minimum(tl.maximum(position, 0), table_rows - 1)
    turned = pairs < tl.where(rotates, D // 2, 0)
    cos = tl.load(cos_ptr + row * (D // 2) + pairs, mask=turned, other=0.0)
    sin = tl.load(sin_ptr + row * (D // 2) + pairs, mask=turned, other=0.0)
    inverse = inverse_scales(k_scale_ptr, v_scale_ptr, head, 0, True, HEADS, KV_HEADS)
    sums = vector_product.vector_products(
        blocks, w_ptr, inside, x_ptr, x_scale_ptr, g_ptr, eps, 0, K, BLOCK, 1, AHEAD, LAYOUT
    )
    sums = sums * scale + bias
    low, high = tl.split(tl.reshape(sums, (PAIRS, 2)))
    STORED: tl.constexpr = k_ptr.dtype.element_ty
    target = head_rows(q_ptr, k_ptr, v_ptr, head, 0, position, HEADS, KV_HEADS, capacity, D)
    # Only q is written regardless of the position.
    written = tl.where((head < HEADS) | fits, D // 2, 0)
    if q_norm_ptr is not None and head < NORMED_HEADS:
        raw_ptr += head * D
        store_pairs(raw_ptr, pairs, low, high, pairs < D // 2, D, DISTANCE)
        # One thread counts for all: their stores must be done.
        tl.debug_barrier()
        if HEADS_BLOCK > 0:
            first_head = tl.where(head < HEADS, 0, HEADS)
            heads = tl.where(head < HEADS, HEADS, KV_HEADS)
            arrived = tl.atomic_add(counter_ptr + first_head, 1, sem="acq_rel")
            if arrived == heads * CHUNKS - 1:
                store_normed_together(
                    raw_ptr + (first_head - head) * D,
                    q_norm_ptr if head < HEADS else k_norm_ptr,
                    cos_ptr + row * (D // 2),
                    sin_ptr + row * (D // 2),
                    head_rows(
                        q_ptr, k_ptr, v_ptr, first_head, 0, position, HEADS, KV_HEADS, capacity, D
                    ),
                    tl.where(head < HEADS, 1, capacity).to(tl.int64) * D,
                    heads,
                    written,
                    head >= HEADS,
                    k_scale_ptr,
                    qk_eps,
                    STORED,
                    D,
                    DISTANCE,
                    HEADS_BLOCK,
                    HALF_BLOCK,
                )
                tl.store(counter_ptr + first_head, 0)
        else:
            arrived = tl.atomic_add(counter_ptr + head, 1, sem="acq_rel")
            if arrived == CHUNKS - 1:
                weight_ptr = q_norm_ptr if head < HEADS else k_norm_ptr
                store_normed_head(
                    raw_ptr,
                    weight_ptr,
                    cos_ptr + row * (D // 2),
                    sin_ptr + row * (D // 2),
                    target,
                    written,
                    head >= HEADS,
                    inverse,
                    rotates,
                    qk_eps,
                    STORED,
                    D,
                    DISTANCE,
                    HALF_BLOCK,
                )
                tl.store(counter_ptr + head, 0)
    else:
        # V is not turned by cos 1 and sin 0: an infinite value times 0 would be NaN.
        if rotates:
            low, high = rotated(low, high, cos, sin)
        store_head(
            target, pairs, low, high, pairs < written, head >= HEADS, inverse, STORED, D, DISTANCE
        )


def qkv_workspace(
    heads: int, normed_heads: int, head_dim: int, tile: Tile, batch: int
) -> tuple[int, int]:
    """Floats and counters of workspace for so many heads of Q, K and V: those of splits, then for
    QK-norm a float for each row that it norms and each token, and a counter for each such head."""
    blocks = heads * _programs_per_head(head_dim, tile)
    floats, counters = split_sizes(blocks, tile, batch)
    return floats + normed_heads * head_dim * batch, counters + normed_heads


def _programs_per_head(head_dim: int, tile: Tile) -> int:
    return -(-(head_dim // 2) // (tile.rows // 2))


@dataclass(frozen=True, slots=True)
class NormQkvRope(NormedProduct):
    """q = rotate(Wq n), K[position] = rotate(Wk n), V[position] = Wv n, n = RMSNorm(x) (x itself
    where `norm` is None). Biases are added before QK-norm, which comes right before the rotation.

    x [batch, hidden], q [batch, heads, D], caches [batch, kv_heads, capacity, D], all contiguous,
    of one dtype (q of one that `check_output` allows; x may also be E4M3 with `x_scale` and FP8
    weights, `Product`), or the caches of float8 (kv_cache.py: divided by `scales`, rounded,
    saturating); `qkv` [(heads + 2 kv_heads) * D, hidden] holds the rows of Q, K, V in this order;
    without those of V, V is Wk n, and without those of K too, only q is written. position int32 [1]
    on the device. `tile.rows` counts both rows of a pair. At a position outside the cache only q is
    written, rotated as at the nearest position of the table. `qkv_workspace` says what QK-norm and
    splits need.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; q in x's memory; a table of fewer
            positions than the cache; a tile of one row, of more than one split for one token, or
            below 16 x 16 for a batch; too small a workspace; one norm for all heads of a batch.
    """

    x: torch.Tensor
    norm: Norm | None
    qkv: WeightMatrix
    rope: RopeTable
    position: torch.Tensor
    q: torch.Tensor
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    tile: Tile
    workspace: Workspace
    qk_norm: QkNorm | None = None
    scales: KvScales | None = None
    x_scale: torch.Tensor | None = None

    def launch(self, pdl: bool = False) -> Launch:
        qk_norm, rope, workspace = self.qk_norm, self.rope, self.workspace
        batch = self._check()
        heads, head_dim = int(self.q.shape[1]), int(self.q.shape[2])
        kv_heads, capacity = int(self.k_cache.shape[1]), int(self.k_cache.shape[2])
        all_heads = heads + 2 * kv_heads if self._writes_rows else heads
        normed_heads = min(heads + kv_heads, all_heads) if qk_norm else 0
        if qk_norm is not None and qk_norm.norms_v:
            normed_heads = all_heads
        programs = all_heads * _programs_per_head(head_dim, self.tile)
        needed = qkv_workspace(all_heads, normed_heads, head_dim, self.tile, batch)
        workspace.check(*needed, self.x.device)
        norms = (None, None) if qk_norm is None else (qk_norm.q_weight, qk_norm.k_weight)
        qk_eps = 0.0 if qk_norm is None else qk_norm.eps
        rotation = rope.cos, rope.sin, self.position
        # Only the kernel of one token has one norm for all heads.
        blocks = {"HEADS_BLOCK": triton.next_power_of_2(heads) if self._norms_together else 0}
        if batch > 1:
            blocks = {"SPLITS": self.tile.splits}
        outputs = self.q, self.k_cache, self.v_cache, *(self.scales or (None, None))
        return self.launched(
            (_norm_qkv_rope_kernel, _norm_qkv_rope_batched_kernel),
            programs,
            self.qkv,
            (*rotation, *norms, *outputs, workspace.partials, workspace.counters),
            (qk_eps, capacity, rope.positions),
            pdl,
            HEADS=heads,
            KV_HEADS=kv_heads,
            MATRIX_HEADS=self.qkv.rows // head_dim,
            NORMED_HEADS=normed_heads,
            D=head_dim,
            DISTANCE=rope.distance,
            **blocks,
            HALF_BLOCK=triton.next_power_of_2(head_dim // 2),
        )

    def _check(self) -> int:
        """Check the fields as the class documents them; returns the batch."""
        q, k_cache, qkv, rope, device = self.q, self.k_cache, self.qkv, self.rope, self.x.device
        batch = self.checked_batch(qkv, splits_batch=True)
        if q.dim() != 3 or k_cache.dim() != 4:
            raise ValueError(
                f"q {list(q.shape)}, k_cache {list(k_cache.shape)}: must be [{batch}, heads, D] "
                f"and [{batch}, kv_heads, capacity, D]"
            )
        heads, head_dim = int(q.shape[1]), int(q.shape[2])
        kv_heads, capacity = int(k_cache.shape[1]), int(k_cache.shape[2])
        if qkv.rows not in [(heads + count * kv_heads) * head_dim for count in (0, 1, 2)]:
            raise ValueError(
                f"qkv of {qkv.rows} rows: {heads} heads of q and {kv_heads} each of k and v of "
                f"{head_dim} rows need {(heads + 2 * kv_heads) * head_dim}"
            )
        if rope.head_dim != head_dim:
            raise ValueError(f"q of head_dim {head_dim}: the table rotates {rope.head_dim}")
        if rope.positions < capacity:
            raise ValueError(f"a table of {rope.positions} positions: the cache has {capacity}")
        check_tensor("cos", rope.cos, (rope.positions, head_dim // 2), torch.float32, device)
        check_output("q", q, (batch, heads, head_dim), self.x)
        check_apart("q", q, self.x)
        caches, shape = (k_cache, self.v_cache, self.scales), (batch, kv_heads, capacity, head_dim)
        check_caches(*caches, shape, q.dtype, device)
        check_position(self.position, device)
        if (qk_norm := self.qk_norm) is not None:
            together = self._norms_together
            sizes = (heads * head_dim, kv_heads * head_dim) if together else (head_dim, head_dim)
            check_floats("q norm weight", qk_norm.q_weight, sizes[:1], device)
            check_floats("k norm weight", qk_norm.k_weight, sizes[1:], device)
            if together and batch > 1:
                raise ValueError(
                    f"one norm for all heads of {batch} tokens: needs launches, RmsNorm"
                )
        if self.tile.rows < 2:
            raise ValueError("a tile of one row holds no rotation pair")
        return batch

    @property
    def _norms_together(self) -> bool:
        """Whether one norm covers all heads of Q, and one all of K."""
        return self.qk_norm is not None and self.qk_norm.q_weight.numel() != self.q.shape[2]

    @property
    def _writes_rows(self) -> bool:
        """Whether the matrix has rows of K."""
        return self.qkv.rows > self.q.shape[1] * self.q.shape[2]

    def inputs(self, position: int) -> Tensors:
        matrix = *parameters(self.norm), *parameters(self.qkv)
        return self.x, *self.scales_of_x, *matrix, *(self.scales or ())

    def outputs(self, position: int) -> Tensors:
        rows = self.k_cache[:, :, position], self.v_cache[:, :, position]
        return self.q, *(rows if self._writes_rows else ())

    def reference(self, position: int) -> Tensors:
        q, *rows = norm_qkv_rope_reference(
            self.values,
            self.norm,
            self.qkv,
            self.rope,
            position,
            self.q.shape[1],
            self.k_cache.shape[1] if self._writes_rows else 0,
            self.qk_norm,
        )
        if not self._writes_rows:
            return (q,)
        written = zip(rows, self.scales or (None, None), strict=True)
        return q, *(codes(row, self.k_cache.dtype, scale) for row, scale in written)
