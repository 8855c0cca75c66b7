"""What `python -m benchmarks block --json` prints.

Times are nanoseconds; if a check failed, `error` says so and there is no time.
"""

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.variants.tuning.report import RoundSpread

SCHEMA_VERSION = 1


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
    """`block --json`: an attention block from input norm to residual, eager and fused.

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
