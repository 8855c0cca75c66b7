"""residual += the sum of what all ranks have: an all-reduce and the addition behind it.

Each rank sends its partial sums to all others and adds up what it has and gets, in the order of the
ranks, so that all ranks have the same bits. `device/exchange.py` says how, without a barrier. The
kernel before may have sent them already (`device/pushed_sums.py`): then this launch only picks up.

Bytes moved: x once, the residual read and written; from each other rank as much as x, which is read
once and cleared; over the links, unless the kernel before has done so, x to each other rank.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.exchange import (
    GAVE_UP,
    clear_last,
    next_turn,
    peer_slots,
    pick_up,
    push,
    sendable,
    words_of_pieces,
)
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_apart, check_floats, check_tensor
from decodescope.kernels.host.exchange import Exchange
from decodescope.kernels.host.operation import Launch, ResidualOperation, Tensors, launch


@triton.jit
def _words(x_ptr, pieces, N):
    """The four words of each piece of a message of N float32, as they are sent; 0 past its end."""
    columns = pieces[:, None] * 4 + tl.arange(0, 4)[None, :]
    x = tl.load(x_ptr + columns, mask=columns < N, other=0.0)
    return words_of_pieces(sendable(x.to(tl.int32, bitcast=True)))


@triton.jit
def _as_float32(piece):
    """The four words of each piece as float32 [pieces, 4]."""
    words = tl.join(tl.join(piece[0], piece[2]), tl.join(piece[1], piece[3]))
    return tl.reshape(words, (piece[0].shape[0], 4)).to(tl.float32, bitcast=True)


@triton.jit
def _all_reduce_residual_kernel(
    x_ptr,
    residual_ptr,
    slots_ptr,
    peers_ptr,
    turns_ptr,
    patience_ptr,
    missing_ptr,
    N: tl.constexpr,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PIECES: tl.constexpr,
    LANES: tl.constexpr,
    ROUNDS: tl.constexpr,
    ADDS: tl.constexpr,
    PUSHED: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    program = tl.program_id(0)
    stride = tl.num_programs(0) * LANES
    first = program * LANES + tl.arange(0, LANES)
    if not PUSHED:
        slots = peer_slots(peers_ptr, RANK, RANKS)
    # All programs of a kernel that pushed have now read the turn, which moves on below.
    wait_for_previous(PDL)
    turn = tl.load(turns_ptr + program)
    gave_up = turn == GAVE_UP
    if not PUSHED and not gave_up:
        for step in range(ROUNDS):
            pieces = first + step * stride
            push(_words(x_ptr, pieces, N), slots, pieces, turn, RANK, RANKS, PIECES)
    for step in range(ROUNDS):
        pieces = first + step * stride
        columns = pieces[:, None] * 4 + tl.arange(0, 4)[None, :]
        mask = columns < N
        own = _as_float32(_words(x_ptr, pieces, N))
        if ADDS:
            residual = tl.load(residual_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        slot = tl.maximum(turn, 0)
        # Nobody needs to send the pieces past the end.
        sent = tl.minimum(pieces, (N - 1) // 4)
        others, missing = pick_up(slots_ptr, patience_ptr, sent, slot, gave_up, RANK, RANKS, PIECES)
        tl.store(missing_ptr, missing, mask=missing > 0)
        gave_up |= missing > 0
        total = tl.zeros((LANES, 4), tl.float32)
        for rank in tl.static_range(RANKS):
            if rank == RANK:
                total += own
            else:
                total += _as_float32(others[(rank - RANK + RANKS - 1) % RANKS])
        if ADDS:
            total += residual
        total = tl.where(gave_up, float("nan"), total)
        tl.store(residual_ptr + columns, total.to(residual_ptr.dtype.element_ty), mask=mask)
        # Only now: a rank that has sent the words of this launch stores none of the last any more.
        if not gave_up:
            clear_last(slots_ptr, pieces, turn, RANK, RANKS, PIECES)
    tl.store(turns_ptr + program, next_turn(turn, gave_up))


@dataclass(frozen=True, slots=True)
class AllReduceResidual(ResidualOperation):
    """residual[b, n] += sum over the ranks of their x[b, n], in float32, rounded once. Unless it
    `adds`, what was there is neither read nor kept.

    x float32 [batch, hidden], residual of any dtype of the kernels, contiguous; `exchange` is for
    messages of that size. Every rank launches it as often as the others, in the same order. A -0.0
    is sent as 0.0. Where a rank's words do not come, the result is NaN. x that is `pushed` was sent
    by the operation before, which has the same `exchange`.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an exchange of another size; a
            residual in x's memory.
    """

    x: torch.Tensor
    residual: torch.Tensor
    exchange: Exchange
    adds: bool = True
    pushed: bool = False

    def launch(self, pdl: bool = False) -> Launch:
        x, residual, exchange = self.x, self.residual, self.exchange
        shape, device = tuple(x.shape), residual.device
        check_floats("residual", residual, shape, device)
        check_tensor("x", x, shape, torch.float32, device)
        check_apart("residual", residual, x)
        division = exchange.check(x.numel(), device)
        return launch(
            _all_reduce_residual_kernel,
            (division.programs,),
            x,
            residual,
            *exchange.tensors,
            N=x.numel(),
            RANK=exchange.rank,
            RANKS=exchange.ranks,
            PIECES=division.pieces,
            LANES=division.lanes,
            ROUNDS=division.rounds,
            ADDS=self.adds,
            PUSHED=self.pushed,
            PDL=pdl,
            num_warps=division.num_warps,
        )

    def reference(self, position: int) -> Tensors:
        """Of what this rank has alone: the other ranks' x is not here."""
        return (self.start.double() + self.x.double(),)
