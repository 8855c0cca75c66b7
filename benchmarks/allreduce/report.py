"""The JSON of `allreduce`, as structures."""

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.variants.tuning.report import RoundSpread

SCHEMA_VERSION = 1
OWN = "own"


class AllReduceFigures(Struct, frozen=True):
    """One way to add up a message of all ranks.

    `rounds_ns` are the times of one all-reduce on rank 0: in each round the median of a few replays
    of a graph ÷ its launches. `own_share`: the time of our kernel ÷ this one's within a round. One
    that is not available, or whose result is wrong, has an `error` and no times.
    """

    name: str
    error: str | None = None
    relative_error: float | None = None
    rounds_ns: RoundSpread | None = None
    own_share: RoundSpread | None = None


class AllReduceSize(Struct, frozen=True):
    """All ways at one size of the message, float32, measured in the same rounds."""

    message_bytes: int
    ways: tuple[AllReduceFigures, ...]


class AllReduceBenchmark(Struct, frozen=True):
    """`allreduce --json`. `one_gpu`: the ranks share a GPU and take turns on it, which shows that
    our kernel works, not how fast it is."""

    schema_version: int
    ranks: int
    one_gpu: bool
    launches: int
    rounds: int
    replays: int
    sizes: tuple[AllReduceSize, ...]
    environment: Environment

    @property
    def errors(self) -> tuple[str, ...]:
        """Each failure of our kernel as one sentence."""
        return tuple(
            f"{way.name} of {size.message_bytes} bytes: {way.error}"
            for size in self.sizes
            for way in size.ways
            if way.error is not None and way.name == OWN
        )
