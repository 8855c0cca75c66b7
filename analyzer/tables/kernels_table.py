"""The kernels of a window, in all or per step; the launches of one; the launch calls of a trace by
time and API."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter

from decodescope.analyzer.names.fitted_names import WHOLE_CELLS, ShortNames
from decodescope.analyzer.names.short_names import readable_kernel, short_name
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchReport, Percentiles
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Mark, Table, columns_of, per_step
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text

# Each short name takes about half a millisecond.
_TOLD_APART = 32
_AT = partial(Column, lambda ns: f"{ns / 1e6:,.4f}", symbol="ms")


def short_names(kernels: Sequence[KernelReport], others: Iterable[str]) -> ShortNames:
    """Short names of `others` beside the longest kernels of a report."""
    return ShortNames(others, (kernel.name for kernel in kernels[:_TOLD_APART]))


def kernels_table(
    kernels: Sequence[KernelReport],
    *,
    attributed: bool,
    on_cpu: bool = False,
    steps: int | None = None,
    most: int | None = None,
) -> Table[KernelReport]:
    """The first `most` kernels. `attributed`: ops overlap, so that kernels are ranked by attributed
    time, and shares are of it. With `steps`, counts and times are means of so many steps."""
    rows = kernels[:most]
    names = short_names(kernels, (kernel.name for kernel in rows))
    name: Column[KernelReport] = kinds.RANGE(
        "name",
        "operator" if on_cpu else "kernel",
        cut=names.of,
        sort=lambda kernel: short_name(kernel.name).lower(),
        least=28,
    )
    short: Column[KernelReport] = kinds.TEXT(
        "short_name",
        "short name",
        lambda kernel: names.of(kernel.name, WHOLE_CELLS),
        csv_only=True,
    )
    return Table(
        "operators" if on_cpu else "kernels",
        (name, short, *_calls(kernels, attributed, steps), *_ROOFLINE, *_SHAPE),
        rows,
        total=len(kernels),
        search=lambda kernel: "\n".join(
            (
                *(of(kernel.name) for of in (str, readable_kernel, short_name, family_of)),
                names.of(kernel.name, WHOLE_CELLS),
            )
        ),
        mark=lambda kernel: Mark("family", family_of(kernel.name)),
    )


def _calls(
    kernels: Sequence[KernelReport], attributed: bool, steps: int | None
) -> tuple[Column[KernelReport], ...]:
    """How often kernels ran and for how long, in all or per step; the time that they are ranked by
    is first."""
    count, time = (
        (kinds.COUNT, kinds.DURATION) if steps is None else (kinds.NUMBER, kinds.MICROSECONDS)
    )
    times: tuple[Column[KernelReport], ...] = (
        time(
            "total_ns",
            "total",
            priority=13 if attributed else 0,
            tone="dim" if attributed else "plain",
        ),
        time(
            "attributed_ns",
            "attributed",
            priority=0 if attributed else 13,
            shown=any(kernel.attributed_ns != kernel.total_ns for kernel in kernels),
            tone="plain" if attributed else "dim",
        ),
    )
    return (
        *per_step(
            steps,
            count("count", "calls", priority=2),
            count(
                "short_calls",
                "short",
                priority=6,
                shown=any(kernel.short_calls for kernel in kernels),
            ),
            *(reversed(times) if attributed else times),
        ),
        time("mean_ns", "mean", priority=5),
        *(
            kinds.PERCENT(key, "share", priority=1, shown=shown, tone="strong", bar=10)
            for key, shown in (("share", not attributed), ("attributed_share", attributed))
        ),
    )


_ROOFLINE: tuple[Column[KernelReport], ...] = (
    kinds.GIGABYTES_PER_S("roofline.bytes_per_s", "", priority=4),
    kinds.FLOPS_PER_S("roofline.flops_per_s", "FLOP/s", priority=12),
    kinds.PERCENT("roofline.share_of_limit", "of limit", priority=3),
    kinds.TEXT("roofline.limit", "bound", priority=7),
    kinds.COUNT("roofline.calls", "of calls", csv_only=True),
    kinds.DURATION("roofline.total_ns", "for", csv_only=True),
    kinds.BYTES("roofline.bytes", "bytes", csv_only=True),
    kinds.NUMBER("roofline.flops", "FLOPs", csv_only=True),
)


def family_of(name: str) -> str:
    """The family of ops that a kernel belongs to."""
    from decodescope.analyzer.names.rules import kernel_meaning

    return kernel_meaning(name).family


def _grid(kernel: KernelReport) -> str:
    text = extent_text(kernel.shape.grid if kernel.shape else None)
    return text + (f" +{kernel.shapes - 1}" if kernel.shapes > 1 else "")


def _blocks(kernel: KernelReport) -> int | None:
    grid = kernel.shape.grid if kernel.shape else None
    return None if grid is None else math.prod(grid)


_SHAPE: tuple[Column[KernelReport], ...] = columns_of(
    "shape",
    kinds.EXTENT("grid", "grid", text=_grid, sort=_blocks, priority=10),
    kinds.COUNT("registers_per_thread", "regs", priority=11),
    kinds.EXTENT("block", "block", csv_only=True),
    kinds.BYTES("shared_memory_bytes", "shared memory", csv_only=True),
    kinds.COUNT("shapes", "shapes", "shapes", csv_only=True),
)


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One launch; None is unknown, or has no such figure. `around` is the beginning of `range` that
    all launches of the kernel have in common."""

    at_ns: int
    step: int | None
    length_ns: int
    attributed_ns: int
    gap_ns: int | None
    queue_ns: int | None
    latency_ns: int | None
    device: int | str
    stream: int
    grid: tuple[int, int, int] | None
    range: str | None
    around: str


def launch_columns(*, several_devices: bool, overlapping: bool) -> tuple[Column[LaunchRow], ...]:
    return (
        _AT("at_ns", "at", first="up"),
        kinds.PLACE("step", "step", priority=2),
        kinds.MICROSECONDS("length_ns", "took"),
        kinds.MICROSECONDS("attributed_ns", "attributed", priority=5 if overlapping else 8),
        kinds.MICROSECONDS("gap_ns", "gap before", priority=1),
        kinds.MICROSECONDS("queue_ns", "queued", priority=4),
        kinds.MICROSECONDS("latency_ns", "call to start", priority=6),
        kinds.PLACE("device", "device", priority=3, shown=several_devices),
        kinds.PLACE("stream", "stream", priority=9),
        kinds.EXTENT("grid", "grid", priority=7),
        kinds.NAME(
            "range",
            "range",
            text=lambda row: UNKNOWN if row.range is None else row.range.removeprefix(row.around),
            priority=1,
            least=16,
            tone="dim",
        ),
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of times by its name; None if none of them is known."""

    name: str
    times: Percentiles | None


def launch_times_table(launches: LaunchReport) -> Table[Distribution]:
    rows = (
        Distribution("call time", launches.api_ns),
        Distribution("queue time", launches.queue_ns),
        Distribution("call to start", launches.launch_latency_ns),
    )
    least: Column[Distribution] = kinds.DURATION("times.min", "min")
    return Table("times", (kinds.TEXT("name", "time"), least, *PERCENTILES), rows)


def launch_apis_table(launches: LaunchReport) -> Table[tuple[str, int]]:
    """The calls of each API function, and all of them."""
    whole = ("all", launches.calls)
    columns: tuple[Column[tuple[str, int]], ...] = (
        kinds.TEXT("name", "launched by", itemgetter(0)),
        kinds.COUNT("calls", "calls", itemgetter(1)),
    )
    rows = (*launches.by_api.items(), whole)
    return Table("functions", columns, rows, tone=lambda row: "strong" if row is whole else "plain")


PERCENTILES: tuple[Column[Distribution], ...] = (
    kinds.DURATION("times.p50", "p50"),
    kinds.DURATION("times.p90", "p90"),
    kinds.DURATION("times.p99", "p99"),
    kinds.DURATION("times.max", "max"),
)
