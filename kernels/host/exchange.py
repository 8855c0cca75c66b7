"""Memory through which the kernels of several ranks exchange words (`device/exchange.py`).

Each rank has three slots for the words of every rank, and uses them in turn. A launch, or the one
before it, stores its words in slot t of the others. It waits for theirs in its own, and clears its
slot t - 1, which is the one of the launch after the next. Nobody stores there yet: others reach
that launch only with the words of this rank's next one, which starts when this one has ended. Nor
does anybody store there any more, not even copies of its words: who sends the words of launch t has
ended launch t - 1. So no rank waits for another except for its words.

The turn is on the device, where each launch moves it on, so captured launches can be replayed.
"""

from dataclasses import dataclass

import torch

SLOTS = 3
PIECE_WORDS = 4
# As float32, -0.0.
MARK = -(2**31)
_WARP = 32
# So few that all run at the same time, beside programs of other kernels: each waits for others.
_MOST_PROGRAMS, _MOST_LANES = 128, 512


@dataclass(frozen=True, slots=True)
class Division:
    """How a message is divided: into `programs` of `lanes` of 16 bytes, `rounds` times. It follows
    from the size of the message alone, so that it is the same on all ranks."""

    programs: int
    lanes: int
    rounds: int

    @property
    def pieces(self) -> int:
        return self.programs * self.lanes * self.rounds

    @property
    def num_warps(self) -> int:
        return self.lanes // _WARP


def division_of(words: int) -> Division:
    """The division of a message of so many words."""
    pieces = -(-words // PIECE_WORDS)
    lanes = 1 << (-(-pieces // _MOST_PROGRAMS) - 1).bit_length()
    lanes = min(max(_WARP, lanes), _MOST_LANES)
    programs = min(-(-pieces // lanes), _MOST_PROGRAMS)
    return Division(programs, lanes, -(-pieces // (programs * lanes)))


@dataclass(frozen=True, slots=True)
class Exchange:
    """The memory of one rank for messages of one size, and where that of the others is.

    `slots` int32 [SLOTS, ranks, pieces, PIECE_WORDS] hold MARK between launches. `peers` int64
    [ranks] are the addresses of every rank's `slots`. `turns` int32 [programs] are the slots of the
    next launch, -1 of a program that gave up. A program waits for `patience_ns` int64 [1] (in the
    interpreter, for so many looks), then writes the number of a missing rank, from 1, to `missing`
    int32 [1], which the host can read while kernels run.
    """

    rank: int
    slots: torch.Tensor
    peers: torch.Tensor
    turns: torch.Tensor
    patience_ns: torch.Tensor
    missing: torch.Tensor

    @property
    def ranks(self) -> int:
        return len(self.peers)

    @property
    def pieces(self) -> int:
        return int(self.slots.shape[2])

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The operands of a kernel."""
        return self.slots, self.peers, self.turns, self.patience_ns, self.missing

    def check(self, words: int, device: torch.device) -> Division:
        """The division of a message; raises `ValueError` unless the memory is for one of that
        size."""
        division = division_of(words)
        if division.pieces != self.pieces or self.slots.device != device:
            raise ValueError(
                f"exchange of {self.pieces} pieces on {self.slots.device}: "
                f"must be {division.pieces} on {device}"
            )
        return division


def sending(
    exchange: Exchange | None, sums: torch.Tensor, num_warps: int
) -> tuple[tuple[torch.Tensor | None, torch.Tensor | None], tuple[int, ...] | None]:
    """The operands of a kernel that sends the `sums` [batch, rows] it writes; and its compile-time
    constant: rank, ranks, batch, rows, pieces of a slot, threads of a program. All are None if
    `exchange` is.

    Raises:
        ValueError: sums that are not float32; as `Exchange.check`.
    """
    if exchange is None:
        return (None, None), None
    if sums.dtype != torch.float32:
        raise ValueError(f"sums for other ranks are {sums.dtype}: must be torch.float32")
    exchange.check(sums.numel(), sums.device)
    shape = (int(size) for size in sums.shape)
    message = exchange.rank, exchange.ranks, *shape, exchange.pieces, num_warps * _WARP
    return (exchange.peers, exchange.turns), message


def new_slots(words: int, ranks: int, device: torch.device | str) -> torch.Tensor:
    """Empty slots for messages of so many words."""
    shape = (SLOTS, ranks, division_of(words).pieces, PIECE_WORDS)
    return torch.full(shape, MARK, dtype=torch.int32, device=device)


def new_exchange(rank: int, slots: torch.Tensor, peers: list[int], patience_ns: int) -> Exchange:
    """The memory of `rank`, which is to exchange words with the slots at the addresses `peers`."""
    device = slots.device
    programs = division_of(int(slots.shape[2]) * PIECE_WORDS).programs
    missing = torch.zeros(1, dtype=torch.int32, pin_memory=device.type == "cuda")
    return Exchange(
        rank,
        slots,
        torch.tensor(peers, dtype=torch.int64, device=device),
        torch.zeros(programs, dtype=torch.int32, device=device),
        torch.full((1,), patience_ns, dtype=torch.int64, device=device),
        missing,
    )
