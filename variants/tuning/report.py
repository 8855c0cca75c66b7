"""The result of `decodescope tune --json`. Times are nanoseconds, with fractions."""

from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.variants.steps.fused.tiling.shapes import StepTiles, TiledOperation
from decodescope.variants.steps.fused.tiling.tile_choice import TileSource
from decodescope.variants.steps.fused.tiling.tuner import TunedOperation

SCHEMA_VERSION = 1


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


class TuningReport(Struct, frozen=True):
    """`decodescope tune --json`: the tiles of one model's fused step, measured in the step.

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
