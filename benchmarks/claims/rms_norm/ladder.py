"""The claim `rmsnorm`: RMSNorm of 2^18 rows of 2^12 float32, from two passes to a pipelined copy,
beside a device copy of the same bytes in the same rounds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.racing import Entrant, Work
from benchmarks.claims.rms_norm.rows import (
    COPY,
    LOOPED,
    NOTES,
    PERSISTENT,
    SINGLE,
    SOURCE,
    VECTORISED,
    beside_the_copy,
    fastest,
    ladder_rows,
)
from benchmarks.claims.rms_norm.rungs import Hint, RmsNormLooped, RmsNormRows, RowTile
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.text.formatting import bytes_size, percent
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import RmsNorm, rms_norm_reference
from decodescope.variants.machine.clock import Call
from decodescope.variants.machine.compile_ahead import launch_all

ROWS, FEATURES = 1 << 18, 1 << 12
EPS = 1e-5
TOLERANCE = 1e-6
# Rows whose float64 reference is in memory at once, and the memory for that.
CHECKED_ROWS = 1 << 13
_RESERVED_BYTES = 2 << 30
# Candidates take turns this often; the best one is measured again with the other rungs.
CHOICE_ROUNDS = 3

# Calls alternate between this many x and out, where they fit into memory: what a cache keeps of one
# x is of no use to the next call.
SETS = 2

# The candidates: the fastest of a sweep on an H200, and the same with other hints.
_LOOPED = ((1024, 8), (2048, 16))
# Rows that a program holds, and its warps.
_HELD: tuple[tuple[int, int, Hint], ...] = (
    (1, 8, ""),
    (8, 16, ""),
    (4, 16, "evict_first"),
    (1, 8, "evict_stores"),
    (2, 8, "evict_stores"),
    (4, 16, "evict_stores"),
)
# Rows, warps, stages, and programs on a multiprocessor. One stage: loads go straight to registers.
_STREAMED: tuple[tuple[int, int, int, int, Hint], ...] = (
    (1, 8, 3, 4, ""),
    (1, 8, 3, 4, "evict_stores"),
    (1, 8, 1, 4, "evict_stores"),
    (2, 8, 1, 3, "evict_stores"),
    (4, 16, 1, 2, "evict_stores"),
)

Rung = RmsNorm | RmsNormLooped | RmsNormRows


@dataclass(frozen=True, slots=True)
class Operands:
    """Sets of x and out [rows, features], and the norm; every entrant reads and writes the same."""

    sets: Sequence[tuple[torch.Tensor, torch.Tensor]]
    norm: Norm

    @classmethod
    def drawn(cls, sets: int, rows: int, features: int, device: str) -> "Operands":
        """Random numbers. A weight of ones would hide a kernel that leaves it out."""
        generator = torch.Generator(device).manual_seed(0)
        weight = torch.empty(features, device=device).normal_(1.0, 0.2, generator=generator)
        xs = [
            torch.empty(rows, features, device=device).normal_(generator=generator)
            for _ in range(sets)
        ]
        return cls([(x, torch.empty_like(x)) for x in xs], Norm(weight, EPS))

    @property
    def x(self) -> torch.Tensor:
        return self.sets[0][0]

    @property
    def out(self) -> torch.Tensor:
        return self.sets[0][1]

    def entrant(self, name: str, what: str, operation: Rung) -> Entrant:
        """An operation on these operands; without a norm it is a copy, which must be exact."""
        replays: list[Call] = [replace(operation, x=x, out=out).launch() for x, out in self.sets]
        return Entrant(
            name,
            what,
            replays,
            partial(self._computed, replays[0]),
            partial(self._expected, operation.norm is None),
            0.0 if operation.norm is None else TOLERANCE,
            ours=True,
            traffic_bytes=(3 if isinstance(operation, RmsNormLooped) else 2) * self.x.nbytes,
        )

    def device_copy(self) -> Entrant:
        """out = x as the CUDA driver copies it."""
        copies = [partial(out.copy_, x) for x, out in self.sets]
        what = "cudaMemcpyAsync, through torch"
        computed, expected = partial(self._computed, copies[0]), partial(self._expected, True)
        return Entrant(COPY, what, copies, computed, expected, 0.0)

    def _computed(self, call: Call) -> tuple[torch.Tensor, ...]:
        self.out.fill_(float("nan"))
        call()
        return tuple(_parts(self.out))

    def _expected(self, copied: bool) -> Iterator[torch.Tensor]:
        for rows in _parts(self.x):
            yield rows.double() if copied else rms_norm_reference(rows, self.norm)


def measure_ladder(setup: Setup, rows: int = ROWS, features: int = FEATURES) -> Measured:
    """The rungs on the current GPU, each with its fastest candidate, and the copies.

    Raises:
        MissingRequirement: too little free memory for operands that exceed the L2 cache.
    """
    cuda = torch.cuda.is_available()
    free_bytes = torch.cuda.mem_get_info()[0] if cuda else 1 << 62
    sets, fitting = what_fits(rows, features, free_bytes)
    work = Work(2 * fitting * features * torch.float32.itemsize)
    if setup.racing.copies(work) > 1:
        raise MissingRequirement(
            f"operands of {bytes_size(work.bytes_moved)} would stay in the L2 cache, and larger "
            "ones do not fit: end other GPU processes"
        )
    size = f"{fitting:,} x {features:,} float32"
    notes = [*NOTES, _kept(setup.racing.l2_bytes, sets, sets * work.bytes_moved)]
    if fitting < rows:
        notes.append(f"{fitting:,} rows instead of {rows:,}: more do not fit into free memory.")
    operands = Operands.drawn(sets, fitting, features, "cuda" if cuda else "cpu")
    races, entrants = [], [operands.device_copy()]
    for rung, candidates in rung_candidates(operands).items():
        setup.say(f"{rung}: {len(candidates)} candidates")
        trials, refused = _trials(operands, candidates)
        notes += [f"{rung}, {name}: {why}" for name, why in refused.items()]
        races.append(setup.racing.race(f"{size}: {rung}", work, trials, CHOICE_ROUNDS))
        best = fastest(races[-1]).name
        entrants.append(operands.entrant(rung, best, candidates[best]))
        if isinstance(chosen := candidates[best], RmsNormRows):
            copy = replace(chosen, norm=None)
            entrants.append(operands.entrant(f"{rung} copy", f"{best}, without a norm", copy))
    setup.say("the best of each, and copies")
    race = setup.racing.race(size, work, entrants)
    shown = (*ladder_rows(race, setup.datasheet_bytes_per_s), beside_the_copy(race))
    return Measured(shown, (race, *races), tuple(notes))


def _trials(
    operands: Operands, candidates: Mapping[str, Rung]
) -> tuple[list[Entrant], dict[str, str]]:
    """Entrants of the candidates that this GPU runs, and why it does not run the others."""
    refused = launch_all(candidates, lambda name: candidates[name].launch())
    running = {name: one for name, one in candidates.items() if name not in refused}
    return [operands.entrant(name, "", one) for name, one in running.items()], refused


def what_fits(rows: int, features: int, free_bytes: int) -> tuple[int, int]:
    """How many sets of x and out fit into free memory, and with how many rows: `SETS` of `rows`, or
    one of `rows`, or one of the largest half, quarter, ... of them."""
    row_bytes = 2 * features * torch.float32.itemsize
    if SETS * rows * row_bytes + _RESERVED_BYTES <= free_bytes:
        return SETS, rows
    while rows > 1 and rows * row_bytes + _RESERVED_BYTES > free_bytes:
        rows //= 2
    return 1, rows


def _kept(l2_bytes: int, sets: int, sets_bytes: int) -> str:
    """What the L2 cache could save a call: a note."""
    how = (
        f"Calls alternate between {sets} sets of x and out"
        if sets > 1
        else "All calls have the same x and out, because a second set does not fit into free memory"
    )
    return (
        f"{how}: of {bytes_size(sets_bytes)} the L2 cache can keep {bytes_size(l2_bytes)} from one "
        f"use to the next, so no time is more than {percent(l2_bytes / sets_bytes)} % too short."
    )


def rung_candidates(operands: Operands) -> dict[str, dict[str, Rung]]:
    """The ways to launch each rung, by rung and by what distinguishes them."""
    x, norm, out = operands.x, operands.norm, operands.out
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count if x.is_cuda else 2
    looped: dict[str, Rung] = {
        f"blocks of {block}, {warps} warps": RmsNormLooped(x, norm, out, block, warps)
        for block, warps in _LOOPED
    }
    held: dict[str, Rung] = {
        f"{_rows(rows)}, {warps} warps{_hinted(hint)}": RmsNormRows(
            x, norm, out, RowTile(rows, warps, hint=hint)
        )
        for rows, warps, hint in _HELD
    }
    streamed: dict[str, Rung] = {
        f"{_rows(rows)}, {warps} warps, {_stages(stages)}, {programs} programs a multiprocessor"
        f"{_hinted(hint)}": RmsNormRows(
            x, norm, out, RowTile(rows, warps, stages, programs * multiprocessors, hint)
        )
        for rows, warps, stages, programs, hint in _STREAMED
    }
    return {
        LOOPED: looped,
        SINGLE: {"the row in registers": RmsNorm(x, norm, out)},
        VECTORISED: held,
        PERSISTENT: streamed,
    }


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    for start in range(0, tensor.shape[0], CHECKED_ROWS):
        yield tensor[start : start + CHECKED_ROWS]


def _rows(rows: int) -> str:
    return "1 row" if rows == 1 else f"{rows} rows"


def _stages(stages: int) -> str:
    return "not pipelined" if stages == 1 else f"{stages} stages"


def _hinted(hint: Hint) -> str:
    return f", {hint}" if hint else ""


RMS_NORM_LADDER = Claim(
    "rmsnorm",
    "RMSNorm of 2^18 x 2^12 float32 as a ladder of kernels, beside a device copy",
    SOURCE,
    measure_ladder,
)
