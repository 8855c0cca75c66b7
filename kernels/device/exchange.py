"""Words that a kernel exchanges with those of other ranks, without a barrier between GPUs.

A message is 16-byte pieces of four words. A rank stores them straight into a slot that each other
rank has for it, and waits until its own slots are full. MARK stands for a word that is not there
yet, so data bring their own "arrived"; a word of a message that equals MARK is sent as 0. As
float32, MARK is -0.0, which no sum needs.

`host/exchange.py` has the memory, and says why its three slots suffice. Every program picks up the
same part of each message, and keeps count of its own.

Loads and stores have system scope and pass L1 by: 16 bytes each, of which every word arrives whole.
Source: PTX ISA, "Memory Consistency Model" and ld, st; flashinfer and TensorRT-LLM call this form
of an all-reduce Lamport's.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import globaltimer

from decodescope.kernels.device.elements import INTERPRETED
from decodescope.kernels.host import exchange

MARK = tl.constexpr(exchange.MARK)
# The turn of a program that gave up.
GAVE_UP = tl.constexpr(-1)
_SLOTS = tl.constexpr(exchange.SLOTS)
_PIECE = tl.constexpr(exchange.PIECE_WORDS)
# Looking at the clock costs as much as looking at the memory.
_LOOKS = tl.constexpr(256)


@triton.jit
def load_piece(pointers):
    """Four words from each pointer to int32, as a tuple."""
    if INTERPRETED:
        words = (
            tl.load(pointers),
            tl.load(pointers + 1),
            tl.load(pointers + 2),
            tl.load(pointers + 3),
        )
    else:
        words = tl.inline_asm_elementwise(
            "ld.relaxed.sys.global.v4.b32 {$0, $1, $2, $3}, [$4];",
            "=r,=r,=r,=r,l",
            [pointers],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=False,
            pack=1,
        )
    return words


@triton.jit
def store_piece(pointers, first, second, third, fourth):
    """Store four words at each pointer to int32."""
    if INTERPRETED:
        tl.store(pointers, first)
        tl.store(pointers + 1, second)
        tl.store(pointers + 2, third)
        tl.store(pointers + 3, fourth)
    else:
        tl.inline_asm_elementwise(
            "{ st.relaxed.sys.global.v4.b32 [$1], {$2, $3, $4, $5}; mov.b32 $0, 0; }",
            "=r,l,r,r,r,r",
            [pointers, first, second, third, fourth],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def _store_present(pointers, words, present):
    """Store the word, or the piece of four, at each pointer to int32 where it is `present`."""
    if INTERPRETED:
        for index in tl.static_range(len(words)):
            tl.store(pointers + index, words[index], mask=present)
    elif len(words) == 1:
        tl.inline_asm_elementwise(
            """{ .reg .pred present; setp.ne.b32 present, $3, 0;
            @present st.relaxed.sys.global.b32 [$1], $2; mov.b32 $0, 0; }""",
            "=r,l,r,r",
            [pointers, words[0], present.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    else:
        tl.inline_asm_elementwise(
            """{ .reg .pred present; setp.ne.b32 present, $6, 0;
            @present st.relaxed.sys.global.v4.b32 [$1], {$2, $3, $4, $5}; mov.b32 $0, 0; }""",
            "=r,l,r,r,r,r,r",
            [pointers, words[0], words[1], words[2], words[3], present.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )


@triton.jit
def sendable(word):
    """A word as it is sent."""
    return tl.where(word == MARK, 0, word)


@triton.jit
def words_of_pieces(pieces):
    """The four words of each of `pieces` [n, 4]."""
    even, odd = tl.split(tl.reshape(pieces, (pieces.shape[0], 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def peer_slots(peers_ptr, RANK: tl.constexpr, RANKS: tl.constexpr):
    """Pointers to the slots of the other ranks, those of rank RANK + 1 first. No kernel changes
    them."""
    slots = ()
    for step in tl.static_range(1, RANKS):
        address = tl.load(peers_ptr + (RANK + step) % RANKS)
        # Triton unpacks no tuples.
        slots = slots + (address.to(tl.pointer_type(tl.int32)),)  # type: ignore[assignment]  # noqa: RUF005
    return slots


@triton.jit
def _places(slots_ptr, source, pieces, turn, RANKS: tl.constexpr, PIECES: tl.constexpr):
    """Where `slots_ptr` has the pieces of rank `source` at this turn."""
    return slots_ptr + ((turn * RANKS + source).to(tl.int64) * PIECES + pieces) * _PIECE


@triton.jit
def push(words, slots, pieces, turn, RANK: tl.constexpr, RANKS: tl.constexpr, PIECES: tl.constexpr):
    """Store the four `words` of each of `pieces` in all `peer_slots`."""
    for step in tl.static_range(1, RANKS):
        places = _places(slots[step - 1], RANK, pieces, turn, RANKS, PIECES)
        store_piece(places, words[0], words[1], words[2], words[3])


@triton.jit
def push_present(
    words,
    slots,
    places,
    present,
    turn,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PIECES: tl.constexpr,
):
    """As `push`, but of `words` (one, or the four of a piece) that go to word `places` of the
    message, and only where they are `present`."""
    for step in tl.static_range(1, RANKS):
        message = _places(slots[step - 1], RANK, 0, turn, RANKS, PIECES)
        _store_present(message + places, words, present)


@triton.jit
def clear_last(
    slots_ptr, pieces, turn, RANK: tl.constexpr, RANKS: tl.constexpr, PIECES: tl.constexpr
):
    """Put MARK into the slots of the launch before, for the launch after the next one."""
    mark = tl.full(pieces.shape, MARK, tl.int32)
    for step in tl.static_range(1, RANKS):
        last = (turn + _SLOTS - 1) % _SLOTS
        places = _places(slots_ptr, (RANK + step) % RANKS, pieces, last, RANKS, PIECES)
        store_piece(places, mark, mark, mark, mark)


@triton.jit
def _looked_up(
    slots_ptr, pieces, turn, RANK: tl.constexpr, RANKS: tl.constexpr, PIECES: tl.constexpr
):
    """The words in the slots of the other ranks, as `pick_up` returns them; and the number of a
    rank of which one is missing, from 1, else 0."""
    words = ()
    missing = tl.zeros(pieces.shape, tl.int32)
    for step in tl.static_range(1, RANKS):
        source = (RANK + step) % RANKS
        piece = load_piece(_places(slots_ptr, source, pieces, turn, RANKS, PIECES))
        words = words + (piece,)  # type: ignore[assignment]  # noqa: RUF005
        lacks = (piece[0] == MARK) | (piece[1] == MARK) | (piece[2] == MARK) | (piece[3] == MARK)
        missing = tl.where(lacks, source + 1, missing)
    return words, tl.max(missing, axis=0)


@triton.jit
def pick_up(
    slots_ptr,
    patience_ptr,
    pieces,
    turn,
    gave_up,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PIECES: tl.constexpr,
):
    """Wait until the words of all other ranks are there: a tuple of pieces, that of rank RANK + 1
    first; and the number of a rank of which one is still missing when the patience, in ns, is over,
    from 1, else 0. A program that `gave_up` does not wait."""
    words, missing = _looked_up(slots_ptr, pieces, turn, RANK, RANKS, PIECES)
    looks, started = tl.full((), 0, tl.int32), tl.full((), 0, tl.int64)
    waits = (missing > 0) & (gave_up == 0)
    while waits:
        words, missing = _looked_up(slots_ptr, pieces, turn, RANK, RANKS, PIECES)
        waits = missing > 0
        looks += 1
        if waits & (looks % _LOOKS == 0):
            now = looks.to(tl.int64) if INTERPRETED else globaltimer()
            started = tl.where(started == 0, now, started)
            waits = now - started < tl.load(patience_ptr)
    return words, missing


@triton.jit
def next_turn(turn, gave_up):
    """The turn of the next launch."""
    return tl.where(gave_up, GAVE_UP, (turn + 1) % _SLOTS)
