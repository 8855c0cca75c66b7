"""What `bench kernels --json` prints: one structure each for kernels, attention blocks, tiles.

Times are nanoseconds, with fractions, because a launch takes only a few thousand of them. A figure
that was not measured is null; if a check failed, `error` says so and there is no time.
"""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation
from decodescope.variants.steps.fused.tiling.tile_choice import TileSource
from decodescope.variants.steps.fused.tiling.tuner import TunedOperation

SCHEMA_VERSION = 1


class LaunchTimes(Struct, frozen=True):
    """Percentiles of the time of one launch, which is the time of a graph's replay ÷ its launches.

    `bytes_per_s` is the kernel's bytes ÷ the median; `share_of_peak` is `bytes_per_s` ÷ the
    measured read peak.
    """

    p10_ns: float
    median_ns: float
    p90_ns: float
    bytes_per_s: float
    share_of_peak: float | None


class KernelUse(Struct, frozen=True):
    """One kernel at the shapes of one operation of the step.

    `bytes_moved` is what a launch must read and write. `launches_per_step` is 0 for kernels that a
    step with all fusions does not launch.
    """

    operation: str
    kernel: str
    shape: str
    launches_per_step: int
    bytes_moved: int
    tile: Tile | None


class KernelFigures(KernelUse, frozen=True):
    """The figures of one kernel.

    A graph holds `launches` launches, which cycle through `copies` sets of operands; `cold` means
    that these exceed the L2 cache several times, so that each launch reads from memory. The
    operands of smaller kernels are in L2, as they are in a decode step. `serial`: each launch
    starts after the previous one has ended; `overlapped`: with programmatic dependent launch, null
    if the GPU lacks it.
    """

    copies: int
    launches: int
    cold: bool
    relative_error: float | None
    tolerance: float
    error: str | None = None
    serial: LaunchTimes | None = None
    overlapped: LaunchTimes | None = None


class KernelBenchmark(Struct, frozen=True):
    """`bench kernels --json`: every kernel of one model's decode step.

    `tile_sources`: for each operation, whether its tile was measured on this machine ("cache"), is
    shipped as measured on a GPU of this name ("table"), or neither ("default").
    """

    schema_version: int
    model: str
    dtype: str
    batch: int
    context: int
    replays: int
    l2_bytes: int
    measured_peak_bytes_per_s: float | None
    measured_peak_at: str | None
    tile_sources: dict[TiledOperation, TileSource]
    kernels: tuple[KernelFigures, ...]
    environment: Environment
    variant: str = "fused"

    @property
    def errors(self) -> tuple[str, ...]:
        """Each failed check as one sentence."""
        return tuple(f"{k.operation}: {k.error}" for k in self.kernels if k.error is not None)


class RoundSpread(Struct, frozen=True):
    """One figure of every round, in order, and their median and range: the range is the noise."""

    median: float
    min: float
    max: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "RoundSpread":
        """The spread of at least one round's values."""
        return cls(median(values), min(values), max(values), tuple(values))

    def over(self, other: "RoundSpread") -> "RoundSpread":
        """This ÷ `other` within each round."""
        return RoundSpread.of([a / b for a, b in zip(self.rounds, other.rounds, strict=True)])


class BlockTimes(Struct, frozen=True):
    """Nanoseconds of one attention block. Ungraphed: the host launches every kernel; graphed: a
    CUDA graph of several blocks is replayed. The ratios are eager ÷ fused within a round: above 1
    fused is faster. `eager_over_fused_graphed` is the gain of fusing alone, without the host.
    """

    eager_ungraphed_ns: RoundSpread
    eager_graphed_ns: RoundSpread
    fused_ungraphed_ns: RoundSpread
    fused_graphed_ns: RoundSpread
    eager_over_fused_ungraphed: RoundSpread
    eager_ungraphed_over_fused_graphed: RoundSpread
    eager_over_fused_graphed: RoundSpread


class BlockFigures(Struct, frozen=True):
    """One attention block in one dtype at one KV-cache length.

    The cosines compare each output with the same block in float32, computed from the same (rounded)
    weights, cache and input; `fused_cosine` must reach `required_cosine`.
    """

    dtype: str
    cache_length: int
    fused_cosine: float
    eager_cosine: float
    required_cosine: float
    error: str | None = None
    times: BlockTimes | None = None


class BlockBenchmark(Struct, frozen=True):
    """`bench kernels --block --json`: input norm to O-projection and residual, eager and fused.

    Each round times `calls` blocks of every way in turn; a graph holds `blocks_per_graph` of them.
    All blocks use the same weights and cache, which are therefore in L2.
    """

    schema_version: int
    model: str
    batch: int
    rounds: int
    calls: int
    blocks_per_graph: int
    blocks: tuple[BlockFigures, ...]
    environment: Environment

    @property
    def errors(self) -> tuple[str, ...]:
        """Each failed check as one sentence."""
        return tuple(
            f"{block.dtype} at {block.cache_length} positions: {block.error}"
            for block in self.blocks
            if block.error is not None
        )


class TuneBenchmark(Struct, frozen=True):
    """`bench kernels --tune --json`: the tiles of one model's fused step, measured in the step.

    Steps are decoded at `position`, in a KV cache of context + tokens. `tile_sources` has the
    sources of the tiles that the search started from. Each of `passes` lists the operations in the
    order of tuning. `before_ns` and `after_ns` are the step's time with the first and the last
    tiles, in rounds that time both in turn, each the median of `replays` replays;
    `before_over_after` is their ratio within a round.
    """

    schema_version: int
    model: str
    dtype: str
    batch: int
    context: int
    tokens: int
    position: int
    replays: int
    tile_sources: dict[TiledOperation, TileSource]
    tiles: StepTiles
    passes: tuple[tuple[TunedOperation, ...], ...]
    before_ns: RoundSpread
    after_ns: RoundSpread
    before_over_after: RoundSpread
    environment: Environment
    variant: str = "fused"

    @property
    def errors(self) -> tuple[str, ...]:
        """Nothing is checked here."""
        return ()
