"""Sums that a kernel's epilogue sends to the other ranks as soon as it has them.

`AllReduceResidual` comes next and picks them up. The kernel reads that launch's turn after its
`wait_for_previous`: the last pick-up, which moved the turn on, is complete then, since every kernel
of the chain waits for its predecessor. The next one moves the turn on after a wait of its own, so
when all programs of this kernel have ended. All of them read the same turn.

The message is [batch, rows] float32. One program sends each word: the four of a piece by one store
where it has them all, else word by word, for each word is its own mark. Words behind the end of the
message are sent as 0 to the end of its last piece, which is picked up as a whole.

The threads of a program share a tensor of fewer elements, each element in several of them, which
would all store it. That is harmless (`host/exchange.py`), but takes time on the links. So tensors
get an axis of copies, as many as the threads allow, of which the first alone is stored.

MESSAGE is the constant of `host.exchange.sending`, None of a kernel that sends nothing.
"""

import triton
import triton.language as tl

from decodescope.kernels.device.exchange import (
    GAVE_UP,
    peer_slots,
    push_present,
    sendable,
    words_of_pieces,
)


@triton.jit
def message_slots(peers_ptr, MESSAGE: tl.constexpr):
    """The `peer_slots` of a message."""
    slots = ()
    if MESSAGE is not None:
        slots = peer_slots(peers_ptr, MESSAGE[0], MESSAGE[1])
    return slots


@triton.jit
def message_turn(turns_ptr, MESSAGE: tl.constexpr):
    """The turn of a message: that of the pick-up's first program. All have the same, except one
    that gave up, after which the step ends. Call it after `wait_for_previous`."""
    turn = GAVE_UP
    if MESSAGE is not None:
        turn = tl.load(turns_ptr)
    return turn


@triton.jit
def push_sums(sums, first, token, slots, turn, MESSAGE: tl.constexpr):
    """Send `sums` [R, T] (float32): rows from `first` on, a multiple of R, of T tokens from `token`
    on. Rows and tokens past the end are not sent, and nothing is once a pick-up has given up."""
    BATCH: tl.constexpr = MESSAGE[2]
    N: tl.constexpr = MESSAGE[3]
    ROWS: tl.constexpr = sums.shape[0]
    TOKENS: tl.constexpr = sums.shape[1]
    WIDE: tl.constexpr = ROWS >= 4 and (N % 4 == 0 or BATCH == 1)
    UNIT: tl.constexpr = 4 if WIDE else 1
    UNITS: tl.constexpr = ROWS // UNIT * TOKENS
    words = sendable(sums.to(tl.int32, bitcast=True))
    if WIDE:
        if N % 4 != 0:
            words = tl.where((first + tl.arange(0, ROWS) < N)[:, None], words, 0)
        pieces = tl.permute(tl.reshape(words, (ROWS // 4, 4, TOKENS)), (2, 0, 1))
        units = words_of_pieces(tl.reshape(pieces, (UNITS, 4)))
    else:
        units = (tl.reshape(tl.trans(words), (UNITS,)),)
    batch = tl.where(turn == GAVE_UP, 0, BATCH)
    tokens = token + tl.arange(0, TOKENS)[:, None]
    rows = first + tl.arange(0, ROWS // UNIT)[None, :] * UNIT
    present = tl.reshape((tokens < batch) & (rows < N), (UNITS,))
    _push_once(units, slots, tl.reshape(tokens * N + rows, (UNITS,)), present, turn, MESSAGE)
    LEFT: tl.constexpr = -BATCH * N % 4
    if LEFT > 0 and not WIDE:
        lane = tl.arange(0, 4)
        # Of the program that has the last word.
        left = tl.where(first + ROWS < N, 0, LEFT)
        left = tl.where(batch > token + TOKENS, 0, tl.minimum(left, batch * LEFT))
        nothing = (tl.zeros((4,), tl.int32),)
        _push_once(nothing, slots, BATCH * N + lane, lane < left, turn, MESSAGE)


@triton.jit
def _push_once(words, slots, places, present, turn, MESSAGE: tl.constexpr):
    """`push_present` of tensors [n], with an axis of copies."""
    SIZE: tl.constexpr = places.shape[0]
    THREADS: tl.constexpr = MESSAGE[5]
    COPIES: tl.constexpr = THREADS // SIZE if SIZE < THREADS else 1
    spread = ()
    for index in tl.static_range(len(words)):
        copies = tl.broadcast_to(words[index][:, None], (SIZE, COPIES))
        # Triton unpacks no tuples.
        spread = spread + (copies,)  # type: ignore[assignment]  # noqa: RUF005
    places = tl.broadcast_to(places[:, None], (SIZE, COPIES))
    present = present[:, None] & (tl.arange(0, COPIES) == 0)[None, :]
    push_present(spread, slots, places, present, turn, MESSAGE[0], MESSAGE[1], MESSAGE[4])
