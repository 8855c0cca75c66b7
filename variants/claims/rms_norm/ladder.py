"""The claim `rmsnorm`: RMSNorm of 2^18 rows of 2^12 float32, from two passes to a pipelined copy,
beside a device copy of the same bytes in the same rounds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.formatting import bytes_size
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import RmsNorm, rms_norm_reference
from decodescope.kernels.ops.rms_norm_rungs import Hint, RmsNormLooped, RmsNormRows, RowTile
from decodescope.variants.claims.claim import Claim, Measured, Setup
from decodescope.variants.claims.racing import Entrant, Work
from decodescope.variants.claims.rms_norm.rows import (
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

_LOOPED = ((1024, 4), (1024, 8), (2048, 4), (2048, 8))
# Rows that a program holds, and its warps.
_HELD = ((1, 4), (1, 8), (2, 8), (4, 16))
# Rows, warps, stages, and programs on a multiprocessor.
_STREAMED = ((1, 4, 2, 8), (1, 4, 3, 4), (1, 8, 3, 4), (1, 8, 6, 2), (1, 16, 12, 1), (2, 8, 3, 2))
_HINTS: tuple[Hint, ...] = ("", "evict_first", "streaming")


@dataclass(frozen=True, slots=True)
class Operands:
    """x and out [rows, features] and the norm; every entrant reads and writes the same."""

    x: torch.Tensor
    norm: Norm
    out: torch.Tensor

    @classmethod
    def drawn(cls, rows: int, features: int, device: str) -> "Operands":
        """Random numbers. A weight of ones would hide a kernel that leaves it out."""
        generator = torch.Generator(device).manual_seed(0)
        x = torch.empty(rows, features, device=device).normal_(generator=generator)
        weight = torch.empty(features, device=device).normal_(1.0, 0.2, generator=generator)
        return cls(x, Norm(weight, EPS), torch.empty_like(x))

    def entrant(self, name: str, what: str, operation: KernelOperation) -> Entrant:
        """An operation on these operands; without a norm it is a copy, which must be exact."""
        copies = isinstance(operation, RmsNormRows) and operation.norm is None
        looped = isinstance(operation, RmsNormLooped)
        return Entrant(
            name,
            what,
            [replay := operation.launch()],
            partial(self._computed, replay),
            partial(self._expected, copies),
            0.0 if copies else TOLERANCE,
            ours=True,
            traffic_bytes=(3 if looped else 2) * self.x.nbytes,
        )

    def device_copy(self) -> Entrant:
        """out = x as the CUDA driver copies it."""
        copy = partial(self.out.copy_, self.x)
        what = "cudaMemcpyAsync, through torch"
        return Entrant(
            COPY, what, [copy], partial(self._computed, copy), partial(self._expected, True), 0.0
        )

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
    fitting = rows_that_fit(rows, features, torch.cuda.mem_get_info()[0]) if cuda else rows
    work = Work(2 * fitting * features * torch.float32.itemsize)
    if setup.racing.copies(work) > 1:
        raise MissingRequirement(
            f"operands of {bytes_size(work.bytes_moved)} would stay in the L2 cache, and larger "
            "ones do not fit: end other GPU processes"
        )
    size = f"{fitting:,} x {features:,} float32"
    notes = [*NOTES]
    if fitting < rows:
        notes.append(f"{fitting:,} rows instead of {rows:,}: more do not fit into free memory.")
    operands = Operands.drawn(fitting, features, "cuda" if cuda else "cpu")
    races, entrants = [], [operands.device_copy()]
    for rung, candidates in rung_candidates(operands).items():
        setup.say(f"{rung}: {len(candidates)} candidates")
        trials, refused = _trials(operands, candidates)
        notes += [f"{rung}, {name}: {why}" for name, why in refused.items()]
        races.append(setup.racing.race(f"{size}: {rung}", work, trials, CHOICE_ROUNDS))
        best = fastest(races[-1]).name
        entrants.append(operands.entrant(rung, best, candidates[best]))
        if isinstance(candidates[best], RmsNormRows):
            copy = replace(candidates[best], norm=None)  # type: ignore[type-var]
            entrants.append(operands.entrant(f"{rung} copy", f"{best}, without a norm", copy))
    setup.say("the best of each, and copies")
    race = setup.racing.race(size, work, entrants)
    shown = (*ladder_rows(race, setup.datasheet_bytes_per_s), beside_the_copy(race))
    return Measured(shown, (race, *races), tuple(notes))


def _trials(
    operands: Operands, candidates: Mapping[str, KernelOperation]
) -> tuple[list[Entrant], dict[str, str]]:
    """Entrants of the candidates that this GPU runs, and why it does not run the others."""
    refused = launch_all(candidates, lambda name: candidates[name].launch())
    running = {name: one for name, one in candidates.items() if name not in refused}
    return [operands.entrant(name, "", one) for name, one in running.items()], refused


def rows_that_fit(rows: int, features: int, free_bytes: int) -> int:
    """`rows`, or the largest half, quarter, ... of them whose x and out fit into free memory."""
    row_bytes = 2 * features * torch.float32.itemsize
    while rows > 1 and rows * row_bytes + _RESERVED_BYTES > free_bytes:
        rows //= 2
    return rows


def rung_candidates(operands: Operands) -> dict[str, dict[str, KernelOperation]]:
    """The ways to launch each rung, by rung and by what distinguishes them."""
    x, norm, out = operands.x, operands.norm, operands.out
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count if x.is_cuda else 2
    looped: dict[str, KernelOperation] = {
        f"blocks of {block}, {warps} warps": RmsNormLooped(x, norm, out, block, warps)
        for block, warps in _LOOPED
    }
    held: dict[str, KernelOperation] = {
        f"{_rows(rows)}, {warps} warps{_hinted(hint)}": RmsNormRows(
            x, norm, out, RowTile(rows, warps, hint=hint)
        )
        for rows, warps in _HELD
        for hint in _HINTS
    }
    streamed: dict[str, KernelOperation] = {
        f"{_rows(rows)}, {warps} warps, {stages} stages, {programs} programs a multiprocessor"
        f"{_hinted(hint)}": RmsNormRows(
            x, norm, out, RowTile(rows, warps, stages, programs * multiprocessors, hint)
        )
        for rows, warps, stages, programs in _STREAMED
        for hint in _HINTS
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


def _hinted(hint: Hint) -> str:
    return f", {hint}" if hint else ""


RMS_NORM_LADDER = Claim(
    "rmsnorm",
    "RMSNorm of 2^18 x 2^12 float32 as a ladder of kernels, beside a device copy",
    SOURCE,
    measure_ladder,
)
