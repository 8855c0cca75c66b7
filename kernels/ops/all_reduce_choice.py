"""The next token of a head whose rows are divided among ranks: the best choice of all of them.

Each rank's `NormHead` leaves the best key of its rows in its workspace (`device/choice.py`). This
launch sends them to the other ranks, and each takes the largest. `device/exchange.py` says how.

Bytes moved: a key of 8 bytes for each sequence to and from each other rank, and a token.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from decodescope.kernels.device.choice import NO_KEY, chosen_index
from decodescope.kernels.device.exchange import (
    GAVE_UP,
    MARK,
    clear_last,
    next_turn,
    peer_slots,
    pick_up,
    push,
)
from decodescope.kernels.device.overlap import allow_next, wait_for_previous
from decodescope.kernels.host.checks import check_position, check_tensor
from decodescope.kernels.host.exchange import Exchange
from decodescope.kernels.host.operation import KernelOperation, Launch, Tensors, launch
from decodescope.kernels.host.workspace import MAX_BATCH

# A key has two words.
CHOICE_WORDS = 2 * MAX_BATCH
_LANES = CHOICE_WORDS // 4


@triton.jit
def _key_words(keys):
    """The upper and lower halves of keys, neither of which is MARK."""
    upper = (keys >> 32).to(tl.int32)
    # Only of no key at all, and of one NaN, which is then one of its neighbours.
    return tl.where(upper == MARK, MARK + 1, upper), keys.to(tl.int32)


@triton.jit
def _key(upper, lower):
    return (upper.to(tl.int64) << 32) | lower.to(tl.int64)


@triton.jit
def _all_reduce_choice_kernel(
    keys_ptr,
    tokens_ptr,
    position_ptr,
    slots_ptr,
    peers_ptr,
    turns_ptr,
    patience_ptr,
    missing_ptr,
    capacity,
    BATCH: tl.constexpr,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    LANES: tl.constexpr,
    PDL: tl.constexpr,
):
    allow_next(PDL)
    lane = tl.arange(0, LANES)
    slots = peer_slots(peers_ptr, RANK, RANKS)
    wait_for_previous(PDL)
    turn = tl.load(turns_ptr)
    gave_up = turn == GAVE_UP
    token = 2 * lane
    even_upper, even_lower = _key_words(tl.load(keys_ptr + token))
    odd_upper, odd_lower = _key_words(tl.load(keys_ptr + token + 1))
    if not gave_up:
        words = (even_upper, even_lower, odd_upper, odd_lower)
        push(words, slots, lane, turn, RANK, RANKS, LANES)
        clear_last(slots_ptr, lane, turn, RANK, RANKS, LANES)
    position = tl.load(position_ptr)
    # Every thread has read the position before one of them overwrites it.
    tl.debug_barrier()
    slot = tl.maximum(turn, 0)
    others, missing = pick_up(slots_ptr, patience_ptr, lane, slot, gave_up, RANK, RANKS, LANES)
    tl.store(missing_ptr, missing, mask=missing > 0)
    even, odd = _key(even_upper, even_lower), _key(odd_upper, odd_lower)
    for other in tl.static_range(RANKS - 1):
        even = tl.maximum(even, _key(others[other][0], others[other][1]))
        odd = tl.maximum(odd, _key(others[other][2], others[other][3]))
    places = tokens_ptr + token * (capacity + 1) + tl.minimum(position, capacity - 1) + 1
    present = tl.where((position >= 0) & (position < capacity), BATCH, 0)
    tl.store(places, chosen_index(even), mask=token < present)
    tl.store(places + capacity + 1, chosen_index(odd), mask=token + 1 < present)
    none = tl.full((LANES,), NO_KEY, tl.int64)
    tl.store(keys_ptr + token, none)
    tl.store(keys_ptr + token + 1, none)
    tl.store(position_ptr, position + 1)
    tl.store(turns_ptr, next_turn(turn, gave_up | (missing > 0)))


@dataclass(frozen=True, slots=True)
class AllReduceChoice(KernelOperation):
    """tokens[b, position + 1] = the index in the largest of the ranks' keys[b]; then position += 1
    and no key is left.

    keys int64 [MAX_BATCH], `Workspace.keys` after `NormHead` without `finishes`; tokens int64
    [batch, capacity + 1]; position int32 [1]. `exchange` is for CHOICE_WORDS. Every rank launches
    it as often as the others. At a position outside `tokens` no token is written. Where a rank's
    keys do not come, the token is any.

    Raises:
        ValueError: other shapes, dtypes, layouts or devices; an exchange of another size.
    """

    keys: torch.Tensor
    tokens: torch.Tensor
    position: torch.Tensor
    exchange: Exchange

    def launch(self, pdl: bool = False) -> Launch:
        keys, tokens, exchange = self.keys, self.tokens, self.exchange
        if tokens.dim() != 2 or not 1 <= len(tokens) <= MAX_BATCH or tokens.shape[1] < 1:
            raise ValueError(f"tokens {list(tokens.shape)}: must be [1 to 64, capacity + 1]")
        check_tensor("tokens", tokens, tuple(tokens.shape), torch.int64, keys.device)
        check_tensor("keys", keys, (MAX_BATCH,), torch.int64, keys.device)
        check_position(self.position, keys.device)
        division = exchange.check(CHOICE_WORDS, keys.device)
        return launch(
            _all_reduce_choice_kernel,
            (division.programs,),
            keys,
            tokens,
            self.position,
            *exchange.tensors,
            int(tokens.shape[1]) - 1,
            BATCH=len(tokens),
            RANK=exchange.rank,
            RANKS=exchange.ranks,
            LANES=_LANES,
            PDL=pdl,
            num_warps=division.num_warps,
        )

    def inputs(self, position: int) -> Tensors:
        return (self.keys[: len(self.tokens)],)

    def outputs(self, position: int) -> Tensors:
        return (self.tokens[:, position + 1],)

    def reference(self, position: int) -> Tensors:
        """Of the keys of this rank alone: the other ranks' are not here."""
        return (0x7FFFFFFF - (self.keys[: len(self.tokens)] & 0x7FFFFFFF),)
