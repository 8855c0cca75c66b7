"""The structures that every screen, table and JSON document reads its figures from.

One analysis produces one `Report`, which `msgspec.json.encode` turns into the documented JSON.
Times are integer nanoseconds. A figure whose inputs are missing is null, and a finding in `Health`
or a `reason` says why.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.kernel_report import KernelReport, LaunchReport
from decodescope.analyzer.schema.step_report import (
    Confidence,
    InterruptionReport,
    LayerReport,
    StepCost,
    StepKindReport,
    StepReport,
    StructureReport,
)

SCHEMA_VERSION = 3

GAP_CLASSES = (
    "unlinked",
    "graph_internal",
    "host_wait",
    "launch_call",
    "kernel_floor",
    "dependency",
    "launch_latency",
)

# What a file may say: larger integers do not fit into a column.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# Some writers of JSON write NaN and Infinity.
BytesPerS = Annotated[float, Meta(gt=0, le=1e18)]

SourceFormat = Literal[
    "kineto", "nsys-sqlite", "rocprof-json", "rocpd", "proton-hatchet", "perfetto", "recording"
]
RangeKind = Literal["range", "operator", "inferred"]
HealthStatus = Literal["ok", "degraded", "no_gpu_activity"]
Weights = Literal["pretrained", "random", "bundled"]
Environment = dict[str, str | int | float | None]


class SamplingSettings(Struct, frozen=True):
    """How tokens are sampled; null instead of it means greedy. A null filter keeps every token."""

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int


class ExpertsBalance(Struct, frozen=True):
    """How evenly a mixture uses the `experts` of a layer.

    Means over the layers: `distinct` experts that the tokens of a step choose, and the share of all
    choices that the busiest one has.
    """

    experts: int
    distinct: float
    busiest_share: float


class CaptureInfo(Struct, frozen=True):
    """A window that decodescope captured; stored inside the trace file.

    `device` is "cuda" or "cpu"; on "cpu" leaf operators count as GPU ops. `position` is the
    KV-cache length before the first captured step. `unprofiled_step_ns` is the median step time
    measured without a profiler just before the window. `measured_peak_bytes_per_s` is the read
    bandwidth of this GPU and `measured_peak_at` the day it was measured (ISO 8601),
    `kernel_floor_ns` the gap between kernels that were queued back to back, measured in this run;
    null if they were not measured. `flops_per_step` counts a multiply-add as two. `lead_steps`
    were recorded before the first captured step, without a marker; readers skip them. `experts`
    is of the step before the window, null where its choices are not known. Of `tp` ranks this is
    the window of one, and bytes and FLOPs are its own.
    """

    device: str
    device_name: str
    model: str
    weights: Weights
    variant: str
    dtype: str
    batch: Int64
    context: Int64
    position: Int64
    steps: Int64
    bytes_per_step: Int64
    unprofiled_step_ns: Int64 | None
    decodescope_version: str
    measured_peak_bytes_per_s: BytesPerS | None = None
    measured_peak_at: str | None = None
    kernel_floor_ns: Int64 | None = None
    flops_per_step: Int64 | None = None
    lead_steps: Int64 = 0
    experts: ExpertsBalance | None = None
    tp: Annotated[int, Meta(ge=1, le=1 << 16)] = 1


class LiveRates(Struct, frozen=True):
    """The rates of a live run when a window was captured: tokens of all sequences a second, and
    step times of the steps before, without a profiler."""

    tokens_per_s: float
    step_p50_ns: int
    step_p99_ns: int


class Source(Struct, frozen=True):
    """`live` is known of a window in a recording."""

    path: str
    format: SourceFormat
    events: int
    live: LiveRates | None = None


class Finding(Struct, frozen=True):
    """A fact that affects how the figures are read: a stable `code` and a sentence."""

    code: str
    message: str


class Health(Struct, frozen=True):
    status: HealthStatus
    unlinked_gpu_ops: int
    findings: tuple[Finding, ...]


class GapTotal(Struct, frozen=True):
    """Gaps, or the parts of gaps that belong to one class; `max_ns` is the longest. `histogram`
    holds (upper bound in ns, count) of the occupied buckets 1, 2, 4, 8, … ns: a length is in the
    first bucket whose bound it does not exceed."""

    count: int
    total_ns: int
    max_ns: int
    histogram: tuple[tuple[int, int], ...] = ()


class HostActivity(Struct, frozen=True):
    """The path of the open ranges of a host thread at one time, its innermost operator and its CUDA
    call; each null if there was none."""

    range: str | None
    operator: str | None
    call: str | None


class GapReport(Struct, frozen=True):
    """One gap: `at_ns` after the device's first op, between the ops `prev` and `next`.

    `parts` holds the ns of each class that occurred (they add up to `length_ns`), `host_wait`
    splits that class by what the host did. `gap_class` is the class of the longest part; if that is
    host_wait, `label` is what the host did for most of it, else null. `call` names the launch call
    of `next`, null if it is not in the trace. `stream`, `step` and `range` are those of `next`.
    `host` is what the launching thread was in halfway through the longest part. If `call` is not in
    the trace, the thread with most launches is used.
    """

    device: int | str
    at_ns: int
    length_ns: int
    gap_class: str
    label: str | None
    prev: str
    next: str
    call: str | None
    stream: int | None = None
    step: int | None = None
    range: str | None = None
    host: HostActivity | None = None
    parts: dict[str, int] = {}
    host_wait: dict[str, int] = {}


class GapGroup(Struct, frozen=True):
    """The gaps of one class between ops of the same two names, `prev` and `next`: the class is that
    of the longest part of a gap. `total_ns` is the time of whole gaps, so all groups add up to the
    idle time of all devices; `max_ns` is the longest gap. `label` is what the host did for most of
    their host_wait, null for other classes."""

    gap_class: str
    label: str | None
    prev: str
    next: str
    count: int
    total_ns: int
    max_ns: int


class StreamReport(Struct, frozen=True):
    """One stream of a device. `all_gaps`, `gaps` and `host_wait` cover the device's gaps that an op
    of this stream ended, so those of all streams add up to the device's idle time."""

    stream: int
    gpu_ops: int
    busy_ns: int
    overlap_ns: int
    gaps: dict[str, GapTotal]
    host_wait: dict[str, GapTotal] = {}
    all_gaps: GapTotal = GapTotal(0, 0, 0)


class DeviceReport(Struct, frozen=True):
    """One device: `idle_ns = window_ns - busy_ns`. `all_gaps` are its whole gaps; `gaps` are their
    parts by class, at most one of a class in a gap. Both add up to `idle_ns`.

    `device` is the CUDA ordinal, or a string: "rank 1 GPU 3" in a report of merged ranks, "cpu" if
    leaf operators count as GPU ops. `overlap_ns` is the time during which two or more ops ran at
    once on one stream. `host_wait` splits `gaps["host_wait"]` by what the launching thread did at
    each moment of it: its pieces, one for each uninterrupted activity, add up to the same time.
    `communication_ns` is the time during which at least one op communicated with another device,
    `exposed_communication_ns` the part of it in which no other op ran on this one; `communication`
    holds the time of each kind of communication that occurred, the longest first (kinds that ran at
    once add up to more than `communication_ns`). `copies_attributed_ns` is the attributed time (see
    `KernelReport`) of copies and fills, `graphs_attributed_ns` that of graphs traced as a whole,
    whose kernels are unknown; over all devices these two and `attributed_ns` of all kernels add up
    to `busy_ns`.
    """

    device: int | str
    name: str
    gpu_ops: int
    kernels: int
    window_ns: int
    busy_ns: int
    idle_ns: int
    overlap_ns: int
    gaps: dict[str, GapTotal]
    host_wait: dict[str, GapTotal]
    kernel_floor_ns: int | None
    kernel_floor_estimated: bool
    all_gaps: GapTotal = GapTotal(0, 0, 0)
    streams: tuple[StreamReport, ...] = ()
    communication_ns: int = 0
    exposed_communication_ns: int = 0
    communication: dict[str, int] = {}
    copies_attributed_ns: int = 0
    graphs_attributed_ns: int = 0


class MainStepsReport(Struct, frozen=True):
    """The steps that every figure per step is of, together: those of the main kind (see `Answer`)
    that no interruption touches, or all of that kind if none is left. A figure per step is ÷
    `steps`. With `steps` 0, no step launched an op: all figures are then of the whole trace, and
    none is per step.

    The time of a step on each of its devices is from its first op there to that of the next step,
    without interruptions. `busy_ns` + `all_gaps.total_ns` is the time of all steps on all their
    devices; `gaps` are the parts of those gaps by class, for the classes that occurred, and
    `communication_ns` is how long one of their ops communicated.

    `gpu_ops` are the ops that the steps launched, with `launch_calls`. Their attributed time (see
    `KernelReport`) is that of kernels, of copies and fills, and of graphs traced as a whole; with
    that of the `outside_ops`, which other steps launched or none, it adds up to the busy time of
    all devices.
    """

    steps: int
    busy_ns: int
    all_gaps: GapTotal
    gaps: dict[str, GapTotal]
    gpu_ops: int
    launch_calls: int
    kernels_attributed_ns: int
    copies_attributed_ns: int
    graphs_attributed_ns: int
    outside_ops: int
    outside_attributed_ns: int
    communication_ns: int = 0

    @property
    def attributed_ns(self) -> int:
        """The attributed time of all ops that the steps launched."""
        return self.kernels_attributed_ns + self.copies_attributed_ns + self.graphs_attributed_ns


class RangeReport(Struct, frozen=True):
    """Range paths are joined with "/"; `gpu_ns` is the busy time of the ops launched inside.
    `attributed_ns` is the attributed time of these ops (see `KernelReport`). Busy times of ranges
    beside each other may overlap and add up to more than that of the range around them; attributed
    times never do.

    `idle_ns` is the time of the gaps that an op of this range (or of one inside it) ended, `gaps`
    the same by class, for the classes that occurred. `kind` "operator" marks a path of framework
    operators, used if the host opened no range, "inferred" one found in the names of kernels: the
    layer and role of ops that no range of the model contains. `matched` is the share of a graph
    replay's ops that were found in the reference if `confidence` is "partial".
    """

    path: str
    gpu_ns: int
    gpu_ops: int
    launch_calls: int
    confidence: Confidence
    idle_ns: int = 0
    gaps: dict[str, int] = {}
    kind: RangeKind = "range"
    matched: float | None = None
    attributed_ns: int = 0


class Attribution(Struct, frozen=True):
    """How many GPU ops have a range path from the host, a reference or a graph's capture, by
    confidence; "none" includes ops outside any range. `inferred` counts the ops, of any of these,
    whose shown path was found in the names of kernels."""

    exact: int
    partial: int
    none: int
    inferred: int = 0


class ObserverReport(Struct, frozen=True):
    """The window of something that ran already: the `door` that was used, the `target` in words,
    and its tokens/s before, during and after; None where the target does not report them. Those of
    several `servers` are sums. Of several `windows`, of which one is reported since others lost
    their kernels, they are before the first, the mean during all, and after the last."""

    door: Literal["kineto", "vllm", "sglang", "servers"]
    target: str
    before_tokens_per_s: float | None = None
    during_tokens_per_s: float | None = None
    after_tokens_per_s: float | None = None
    windows: int = 1


class Report(Struct, frozen=True):
    """Everything known about one trace; `msgspec.json.encode(report)` is `analyze --json`.

    `launches`, `kernels` and `ranges` are of `main_steps`; `devices`, `largest_gaps` (the ten
    longest of all devices), `gap_groups` (the hundred with the most time, of `gap_group_count`) and
    `attribution` are of the whole trace. `interruptions` are set apart: `answer` and the times of
    steps are without them. `communication` says who waits for whom among several GPUs of one trace;
    null of merged ranks (see `RanksReport`) and without communication.

    `kernels_ranked_by` names the figure that orders `kernels`, largest first: "attributed_ns" where
    the durations of ops add up to over 2 % more than busy time, else "total_ns". Ranges beside each
    other are then in order of `attributed_ns` too, else of `gpu_ns`.
    """

    schema_version: int
    source: Source
    health: Health
    devices: tuple[DeviceReport, ...]
    launches: LaunchReport
    steps: tuple[StepReport, ...]
    kernels: tuple[KernelReport, ...]
    ranges: tuple[RangeReport, ...]
    answer: Answer
    capture: CaptureInfo | None = None
    largest_gaps: tuple[GapReport, ...] = ()
    gap_groups: tuple[GapGroup, ...] = ()
    gap_group_count: int = 0
    attribution: Attribution | None = None
    kernels_ranked_by: Literal["total_ns", "attributed_ns"] = "total_ns"
    step_kinds: tuple[StepKindReport, ...] = ()
    structure: StructureReport | None = None
    layers: tuple[LayerReport, ...] = ()
    step_cost: StepCost | None = None
    interruptions: tuple[InterruptionReport, ...] = ()
    communication: CommunicationReport | None = None
    main_steps: MainStepsReport = MainStepsReport(0, 0, GapTotal(0, 0, 0), {}, *(0,) * 7)
    observer: ObserverReport | None = None

    @property
    def overlapping(self) -> bool:
        """Whether kernels and ranges are shown and ranked by attributed time, as ops overlap."""
        return self.kernels_ranked_by == "attributed_ns"

    @property
    def standing_kind(self) -> StepKindReport | None:
        """The kind of the step that stands for the trace; None if it may be of several kinds."""
        decode = [row for row in self.step_kinds if row.kind == "decode"]
        if decode:
            return decode[0]
        return self.step_kinds[0] if len(self.step_kinds) == 1 else None

    @property
    def on_cpu(self) -> bool:
        """Whether leaf operators of a CPU count as GPU ops."""
        return any(str(device.device).endswith("cpu") for device in self.devices)
