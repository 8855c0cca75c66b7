"""What `gemm --json` prints."""

from msgspec import Struct

from benchmarks.gemm.gemm_tiles import Candidate
from benchmarks.gemm.gemm_tuner import GemmTrial
from benchmarks.kernels.report import LaunchTimes
from decodescope.analyzer.schema.report import Environment
from decodescope.variants.tuning.report import RoundSpread


class GemmFigures(Struct, frozen=True):
    """One GEMM at one number of tokens.

    Times are of one launch: a round's is the median of a few replays of a graph ÷ its launches, and
    `times` has the percentiles of the rounds. `speedups`: by peer, its time ÷ this one's in each
    round, above 1 where this one is faster. `bytes_moved` is what a launch must read and write. A
    GEMM that torch lacks or refuses, and one whose result is wrong, has an `error` and no times.
    """

    name: str
    error: str | None = None
    note: str | None = None
    candidate: Candidate | None = None
    bytes_moved: int | None = None
    relative_error: float | None = None
    tolerance: float | None = None
    times: LaunchTimes | None = None
    rounds_ns: tuple[float, ...] = ()
    speedups: dict[str, RoundSpread] = {}


class GemmSize(Struct, frozen=True):
    """All GEMMs at one number of tokens, measured in the same rounds; `trials`: by GEMM, the tiles
    that were tried before, the fastest first."""

    tokens: int
    gemms: tuple[GemmFigures, ...]
    trials: dict[str, tuple[GemmTrial, ...]]


class GemmBenchmark(Struct, frozen=True):
    """`gemm --json`: x [tokens, columns] times W^T, W [rows, columns], from cold memory.

    A graph holds `launches` launches, which cycle through `copies` matrices that together exceed
    the L2 cache several times.
    """

    schema_version: int
    rows: int
    columns: int
    copies: int
    launches: int
    rounds: int
    replays: int
    l2_bytes: int
    measured_peak_bytes_per_s: float | None
    measured_peak_at: str | None
    sizes: tuple[GemmSize, ...]
    environment: Environment

    @property
    def errors(self) -> tuple[str, ...]:
        """Each failure of a GEMM of ours as one sentence; a peer's is not an error of this run."""
        return tuple(
            f"{gemm.name} at {size.tokens} tokens: {gemm.error}"
            for size in self.sizes
            for gemm in size.gemms
            if gemm.error is not None and gemm.name not in PEERS
        )


# What the speedups are against.
PEERS = ("cublas_bf16", "scaled_mm_tensorwise", "scaled_mm_rowwise", "plain_triton", "w8a8_unsplit")
