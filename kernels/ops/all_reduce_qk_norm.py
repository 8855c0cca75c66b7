"""One norm for all heads of Q, and one for all of K, where each rank has some of the heads: the
sums of squares are added up over the ranks, in one launch with the norms.

A program a token: it sends the mean squares of this rank's Q and K to all others, and adds up what
it has and gets, in the order of the ranks. `device/exchange.py` says how, without a barrier. Ranks
have equally many heads, and each head is on equally many ranks, so the mean over all heads, each
counted once, is that of the ranks' means.

Bytes moved: q and k read and written, the norms' weights; over the links 512 bytes a token to each
other rank and as many from each, of which 8 are needed: a warp sends 16 bytes a lane.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.elements import rounded
from decodescope.kernels.device.exchange import (
    GAVE_UP,
    clear_last,
    next_turn,
    peer_slots,
    pick_up,
    push,
)
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_float, check_floats, check_tensor
from decodescope.kernels.host.exchange import PIECE_WORDS, Exchange
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.weights import Norm, QkNorm
from decodescope.kernels.host.workspace import MAX_BATCH
from decodescope.kernels.ops.rms_norm import rms_norm_reference

_LANES = 32
# Elements of a row at a time: 64 a lane.
_MAX_BLOCK = 2048


def norm_words(batch: int) -> int:
    """The words of the message of so many tokens."""
    return batch * _LANES * PIECE_WORDS


@triton.jit
def _mean_square(row_ptr, features, BLOCK: tl.constexpr):
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, features, BLOCK):
        column = first + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + column, mask=column < features, other=0.0).to(tl.float32)
        squares += x * x
    return tl.sum(squares, axis=0) / features


@triton.jit
def _store_normed(row_ptr, weight_ptr, features, mean_square, eps, BLOCK: tl.constexpr):
    """Norm a row in place."""
    rstd = tl.rsqrt(mean_square + eps)
    for first in range(0, features, BLOCK):
        column = first + tl.arange(0, BLOCK)
        mask = column < features
        x = tl.load(row_ptr + column, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
        tl.store(row_ptr + column, rounded(x * rstd * weight, row_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _all_reduce_qk_norm_kernel(
    q_ptr,
    k_ptr,
    q_weight_ptr,
    k_weight_ptr,
    slots_ptr,
    peers_ptr,
    turns_ptr,
    patience_ptr,
    missing_ptr,
    q_features,
    k_features,
    q_stride,
    k_stride,
    eps,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PIECES: tl.constexpr,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    token = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    pieces = tl.program_id(0) * LANES + lane
    slots = peer_slots(peers_ptr, RANK, RANKS)
    q_ptr += token * q_stride
    k_ptr += token * k_stride
    wait_for_previous(PDL)
    turn = tl.load(turns_ptr + token)
    gave_up = turn == GAVE_UP
    # The first lane has both; a mean of squares is never -0.0.
    q_mean = tl.where(lane == 0, _mean_square(q_ptr, q_features, BLOCK), 0.0)
    k_mean = tl.where(lane == 0, _mean_square(k_ptr, k_features, BLOCK), 0.0)
    if not gave_up:
        none = tl.zeros((LANES,), tl.int32)
        words = (q_mean.to(tl.int32, bitcast=True), k_mean.to(tl.int32, bitcast=True), none, none)
        push(words, slots, pieces, turn, RANK, RANKS, PIECES)
        clear_last(slots_ptr, pieces, turn, RANK, RANKS, PIECES)
    slot = tl.maximum(turn, 0)
    others, missing = pick_up(slots_ptr, patience_ptr, pieces, slot, gave_up, RANK, RANKS, PIECES)
    tl.store(missing_ptr, missing, mask=missing > 0)
    gave_up |= missing > 0
    q_total = tl.zeros((LANES,), tl.float32)
    k_total = tl.zeros((LANES,), tl.float32)
    for rank in tl.static_range(RANKS):
        if rank == RANK:
            q_total += q_mean
            k_total += k_mean
        else:
            piece = others[(rank - RANK + RANKS - 1) % RANKS]
            q_total += piece[0].to(tl.float32, bitcast=True)
            k_total += piece[1].to(tl.float32, bitcast=True)
    q_mean_square = tl.where(gave_up, float("nan"), tl.sum(q_total, axis=0) / RANKS)
    k_mean_square = tl.where(gave_up, float("nan"), tl.sum(k_total, axis=0) / RANKS)
    _store_normed(q_ptr, q_weight_ptr, q_features, q_mean_square, eps, BLOCK)
    _store_normed(k_ptr, k_weight_ptr, k_features, k_mean_square, eps, BLOCK)
    tl.store(turns_ptr + token, next_turn(turn, gave_up))


@dataclass(frozen=True, slots=True)
class AllReduceQkNorm(KernelOperation):
    """q = q / sqrt(mean(q^2) + eps) * weight in place, with the mean over the heads of all ranks,
    and k likewise; computed in float32 and rounded once.

    q [batch, heads * head_dim] and k [batch, kv_heads * head_dim] of one dtype, the batch of any
    stride, and the weights of `norm` are those of this rank's heads. `exchange` is for
    `norm_words(batch)`. Every rank launches it as often as the others. Where a rank's words do not
    come, the result is NaN.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an exchange of another size.
    """

    q: torch.Tensor
    k: torch.Tensor
    norm: QkNorm
    exchange: Exchange

    def launch(self, pdl: bool = False) -> Launch:
        q, k, norm, exchange = self.q, self.k, self.norm, self.exchange
        if q.dim() != 2 or k.dim() != 2 or not 1 <= len(q) <= MAX_BATCH:
            raise ValueError(
                f"q {list(q.shape)}, k {list(k.shape)}: must be [1 to {MAX_BATCH}, features]"
            )
        batch, device = len(q), q.device
        check_float("q", q)
        check_tensor("q", q, tuple(q.shape), q.dtype, device, strided=True)
        check_tensor("k", k, (batch, int(k.shape[1])), q.dtype, device, strided=True)
        check_floats("q norm weight", norm.q_weight, (int(q.shape[1]),), device)
        check_floats("k norm weight", norm.k_weight, (int(k.shape[1]),), device)
        division = exchange.check(norm_words(batch), device)
        widest = triton.next_power_of_2(max(q.shape[1], k.shape[1]))
        return launch(
            _all_reduce_qk_norm_kernel,
            (batch,),
            q,
            k,
            norm.q_weight,
            norm.k_weight,
            *exchange.tensors,
            int(q.shape[1]),
            int(k.shape[1]),
            q.stride(0),
            k.stride(0),
            norm.eps,
            RANK=exchange.rank,
            RANKS=exchange.ranks,
            PIECES=division.pieces,
            LANES=_LANES,
            BLOCK=min(widest, _MAX_BLOCK),
            PDL=pdl,
            num_warps=division.num_warps,
        )

    def inputs(self, position: int) -> Tensors:
        return self.weights

    def outputs(self, position: int) -> Tensors:
        return ()

    @property
    def updated(self) -> Tensors:
        return self.q, self.k

    def reference(self, position: int) -> Tensors:
        """Of this rank's heads alone: the others' are not here."""
        weights = self.norm.q_weight, self.norm.k_weight
        return tuple(
            rms_norm_reference(rows, Norm(weight, self.norm.eps))
            for rows, weight in zip(self.updated, weights, strict=True)
        )
