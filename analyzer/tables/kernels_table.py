"""The kernels of a window, in all or per step; the launches of one; the launch calls of a trace by
time and API."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from decodescope.analyzer.names.fitted_names import ShortNames
from decodescope.analyzer.names.short_names import readable_kernel, short_name
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchReport, Percentiles
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Mark, Table, columns_of, per_step
from decodescope.analyzer.text.formatting import UNKNOWN, extent_text

# No short name is longer.
_WHOLE_CELLS = 1_000
_AT = partial(Column, lambda ns: f"{ns / 1e6:,.4f}", symbol="ms")


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
    names = ShortNames(kernel.name for kernel in rows)
    name: Column[KernelReport] = kinds.RANGE(
        "name",
        "operator" if on_cpu else "kernel",
        "The kernel, by its short name.",
        cut=names.of,
        sort=lambda kernel: short_name(kernel.name).lower(),
        least=28,
    )
    short: Column[KernelReport] = kinds.TEXT(
        "short_name",
        "short name",
        "The short name of the kernel, whole.",
        lambda kernel: names.of(kernel.name, _WHOLE_CELLS),
        csv_only=True,
    )
    return Table(
        "operators" if on_cpu else "kernels",
        (name, short, *_calls(kernels, attributed, steps), *_ROOFLINE, *_SHAPE),
        rows,
        total=len(kernels),
        search=lambda kernel: "\n".join(
            of(kernel.name) for of in (str, readable_kernel, short_name, family_of)
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
            "The sum of the durations of its calls.",
            priority=13 if attributed else 0,
            tone="dim" if attributed else "plain",
        ),
        time(
            "attributed_ns",
            "attributed",
            "Attributed time: shared with the kernels that run at once.",
            priority=0 if attributed else 13,
            shown=any(kernel.attributed_ns != kernel.total_ns for kernel in kernels),
            tone="plain" if attributed else "dim",
        ),
    )
    return (
        *per_step(
            steps,
            count("count", "calls", "How often it ran.", priority=2),
            count(
                "short_calls",
                "short",
                "Calls that ran for less time than their launch call took.",
                priority=6,
                shown=any(kernel.short_calls for kernel in kernels),
            ),
            *(reversed(times) if attributed else times),
        ),
        time("mean_ns", "mean", "The mean duration of a call.", priority=5),
        *(
            kinds.PERCENT(
                key,
                "share",
                f"Its part of the {times} of all kernels.",
                priority=1,
                shown=shown,
                tone="strong",
                bar=10,
            )
            for key, times, shown in (
                ("share", "durations", not attributed),
                ("attributed_share", "attributed time", attributed),
            )
        ),
    )


_ROOFLINE: tuple[Column[KernelReport], ...] = (
    kinds.GIGABYTES_PER_S(
        "roofline.bytes_per_s",
        "",
        "The bytes that its calls must move ÷ their durations.",
        priority=4,
    ),
    kinds.FLOPS_PER_S(
        "roofline.flops_per_s",
        "FLOP/s",
        "The FLOPs that its calls must do ÷ their durations.",
        priority=12,
    ),
    kinds.PERCENT(
        "roofline.share_of_limit",
        "of limit",
        "The least time for its bytes and FLOPs at the device's peaks ÷ its duration.",
        priority=3,
    ),
    kinds.TEXT(
        "roofline.limit",
        "bound",
        "Which takes longer at the peaks: the bytes (memory) or the FLOPs (compute).",
        priority=7,
    ),
    kinds.COUNT("roofline.calls", "of calls", "Calls with known bytes and FLOPs.", csv_only=True),
    kinds.DURATION("roofline.total_ns", "for", "The durations of those calls.", csv_only=True),
    kinds.BYTES("roofline.bytes", "bytes", "The bytes that they must move.", csv_only=True),
    kinds.NUMBER("roofline.flops", "FLOPs", "The FLOPs that they must do.", csv_only=True),
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
    kinds.EXTENT(
        "grid",
        "grid",
        "The launch grid of most calls, in blocks, and how many other launch shapes there are.",
        text=_grid,
        sort=_blocks,
        priority=10,
    ),
    kinds.COUNT("registers_per_thread", "regs", "Registers of a thread.", priority=11),
    kinds.EXTENT("block", "block", "The launch block of most calls, in threads.", csv_only=True),
    kinds.BYTES(
        "shared_memory_bytes", "shared memory", "The shared memory of a block.", csv_only=True
    ),
    kinds.COUNT("shapes", "shapes", "How many launch shapes it has.", "shapes", csv_only=True),
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
        _AT("at_ns", "at", "When, after the first op of the trace.", first="up"),
        kinds.PLACE("step", "step", "Its step.", priority=2),
        kinds.MICROSECONDS("length_ns", "took", "Its duration."),
        kinds.MICROSECONDS(
            "attributed_ns",
            "attributed",
            "Attributed time: shared with the kernels that run at once.",
            priority=5 if overlapping else 8,
        ),
        kinds.MICROSECONDS(
            "gap_ns", "gap before", "The gap of the device that it ended.", priority=1
        ),
        kinds.MICROSECONDS(
            "queue_ns", "queued", "From its launch call's end to its start.", priority=4
        ),
        kinds.MICROSECONDS(
            "latency_ns", "call to start", "From its launch call's start to its start.", priority=6
        ),
        kinds.PLACE("device", "device", "The device.", priority=3, shown=several_devices),
        kinds.PLACE("stream", "stream", "The stream.", priority=9),
        kinds.EXTENT("grid", "grid", "The launch grid in blocks.", priority=7),
        kinds.NAME(
            "range",
            "range",
            "The range, without what all launches of the kernel have in common.",
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
    name = "Of the call, from its end, or from its start to the op's start."
    least: Column[Distribution] = kinds.DURATION("times.min", "min", "The shortest.")
    return Table("times", (kinds.TEXT("name", "time", name), least, *PERCENTILES), rows)


@dataclass(frozen=True, slots=True)
class LaunchApiRow:
    """The calls of one API function, or all of them."""

    name: str
    calls: int
    whole: bool = False


def launch_apis_table(launches: LaunchReport) -> Table[LaunchApiRow]:
    rows = [LaunchApiRow(name, calls) for name, calls in launches.by_api.items()]
    rows.append(LaunchApiRow("all", launches.calls, whole=True))
    return Table("functions", _APIS, rows, tone=lambda row: "strong" if row.whole else "plain")


PERCENTILES: tuple[Column[Distribution], ...] = (
    kinds.DURATION("times.p50", "p50", "The median."),
    kinds.DURATION("times.p90", "p90", "90 % are at most that long."),
    kinds.DURATION("times.p99", "p99", "99 % are at most that long."),
    kinds.DURATION("times.max", "max", "The longest."),
)
_APIS: tuple[Column[LaunchApiRow], ...] = (
    kinds.TEXT("name", "launched by", "The function of the API."),
    kinds.COUNT("calls", "calls", "How often it put work on a device."),
)
