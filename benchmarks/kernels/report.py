"""What `python -m benchmarks kernels --json` prints.

Times are nanoseconds, with fractions, because a launch takes only a few thousand of them. A figure
that was not measured is null; if a check failed, `error` says so and there is no time.
"""

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.kernels.host.tile import Tile
from decodescope.variants.steps.fused.tiling.shapes import TiledOperation
from decodescope.variants.steps.fused.tiling.tile_table import TileSource

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
    """`python -m benchmarks kernels --json`: every kernel of one model's decode step.

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
