"""The structures that every screen, table and JSON document reads its figures from.

One analysis gives one `Report`; one measured run gives one `RunReport`. Both serialise with
`msgspec.json.encode` to the documented JSON. Times are integer nanoseconds. A figure whose inputs
are missing is null, and a finding in `Health` or a `reason` says why.
"""

from typing import Literal

from msgspec import Struct

SCHEMA_VERSION = 1

GAP_CLASSES = (
    "unlinked",
    "graph_internal",
    "host_wait",
    "kernel_floor",
    "dependency",
    "launch_latency",
)

SourceFormat = Literal["kineto", "nsys-sqlite", "recording"]
HealthStatus = Literal["ok", "degraded", "no_gpu_activity"]
Confidence = Literal["exact", "partial", "none"]
Bound = Literal["launch", "memory", "compute", "mixed", "unknown"]
Weights = Literal["pretrained", "random", "bundled"]


class CaptureInfo(Struct, frozen=True):
    """What decodescope itself knows about a window it captured; travels inside the trace file.

    `device` is "cuda" or "cpu"; on "cpu" the leaf operators stand for GPU ops. `position` is the
    KV-cache length before the first captured step. `unprofiled_step_ns` is the median step time
    measured without a profiler just before the window, and `measured_peak_bytes_per_s` the read
    bandwidth of this GPU in this run, null where it was not measured.
    """

    device: str
    device_name: str
    model: str
    weights: Weights
    variant: str
    dtype: str
    batch: int
    context: int
    position: int
    steps: int
    bytes_per_step: int
    unprofiled_step_ns: int | None
    decodescope_version: str
    measured_peak_bytes_per_s: float | None = None


class Source(Struct, frozen=True):
    path: str
    format: SourceFormat
    events: int


class Finding(Struct, frozen=True):
    """One thing a reader of the figures must know: a stable `code` and a sentence."""

    code: str
    message: str


class Health(Struct, frozen=True):
    status: HealthStatus
    unlinked_gpu_ops: int
    findings: tuple[Finding, ...]


class GapTotal(Struct, frozen=True):
    count: int
    total_ns: int
    max_ns: int


class GapReport(Struct, frozen=True):
    """One gap: `at_ns` after the device's first op, between the ops `prev` and `next`.

    `label` says what the host did during a host_wait, `call` names the launch call of `next`; both
    are null where there is none.
    """

    device: int | str
    at_ns: int
    length_ns: int
    gap_class: str
    label: str | None
    prev: str
    next: str
    call: str | None


class DeviceReport(Struct, frozen=True):
    """One device: `idle_ns = window_ns - busy_ns`, and the gap classes add up to `idle_ns`.

    `device` is the CUDA ordinal, or the string "cpu" where leaf operators stand for GPU ops.
    `overlap_ns` is the time during which two or more ops ran at once on one stream.
    `host_wait` splits `gaps["host_wait"]` by what the host did meanwhile.
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


class Percentiles(Struct, frozen=True):
    p50: int
    p99: int


class LaunchReport(Struct, frozen=True):
    """Launch calls: host API calls that put at least one GPU op on a device.

    `api_ns` = call end - call start; `queue_ns` = kernel start - call end where not negative;
    `launch_latency_ns` (TKLQT) = kernel start - call start.
    """

    calls: int
    by_api: dict[str, int]
    graph_launches: int
    gpu_ops_per_graph_launch: tuple[int, ...]
    api_ns: Percentiles | None
    queue_ns: Percentiles | None
    launch_latency_ns: Percentiles | None
    median_queue_depth: float | None


class StepReport(Struct, frozen=True):
    """One decode step. `host_ns` is the host marker's length, `gpu_span_ns` the time from the first
    start to the last end of the ops it launched; busy and idle are inside the GPU span."""

    index: int
    name: str
    host_ns: int | None
    gpu_span_ns: int | None
    busy_ns: int
    idle_ns: int | None
    launch_calls: int
    gpu_ops: int


class KernelReport(Struct, frozen=True):
    """`share` is of the summed durations of all kernels, not of the window."""

    name: str
    count: int
    total_ns: int
    mean_ns: int
    share: float


class RangeReport(Struct, frozen=True):
    """Range paths are joined with "/"; `gpu_ns` is the busy time of the ops launched inside."""

    path: str
    gpu_ns: int
    gpu_ops: int
    launch_calls: int
    confidence: Confidence


class Verdict(Struct, frozen=True):
    bound: Bound
    because: tuple[str, ...]


class Observer(Struct, frozen=True):
    """What the profiler cost: tokens/s is always taken from unprofiled steps."""

    unprofiled_step_ns: int | None
    profiled_step_ns: int | None
    ratio: float | None


class Report(Struct, frozen=True):
    """Everything one trace says; `msgspec.json.encode(report)` is `analyze --json`.

    `largest_gaps` holds the ten longest gaps of all devices, longest first.
    """

    schema_version: int
    source: Source
    health: Health
    devices: tuple[DeviceReport, ...]
    launches: LaunchReport
    steps: tuple[StepReport, ...]
    kernels: tuple[KernelReport, ...]
    ranges: tuple[RangeReport, ...]
    verdict: Verdict
    capture: CaptureInfo | None = None
    observer: Observer | None = None
    largest_gaps: tuple[GapReport, ...] = ()


class StepTimes(Struct, frozen=True):
    p50: int
    p90: int
    p99: int
    mean: int


class Bandwidth(Struct, frozen=True):
    """MBU = achieved / measured peak (datasheet peak where none was measured; `mbu_of` says which).

    `achieved_bytes_per_s` = bytes a step must read / median unprofiled step time.
    """

    achieved_bytes_per_s: float
    measured_peak_bytes_per_s: float | None
    datasheet_peak_bytes_per_s: float | None
    mbu: float | None
    mbu_of: Literal["measured", "datasheet"] | None


class WaterfallPart(Struct, frozen=True):
    part: str
    ns: int


class RunReport(Struct, frozen=True):
    """One measured variant; `msgspec.json.encode(run_report)` is `run --json`.

    tokens/s and step times come from `timed_steps` unprofiled steps; launches, ops and idle from a
    profiled window of the same run, whose cost `observer` states. The waterfall adds up to the
    profiled step.
    """

    schema_version: int
    model: str
    weights: Weights
    variant: str
    device: str
    device_name: str
    dtype: str
    batch: int
    context: int
    tokens: int
    prompt_token_ids: list[list[int]]
    output_token_ids: list[list[int]]
    output_text: str | None
    timed_steps: int
    tokens_per_s: float
    prefill_ns: int
    step_ns: StepTimes
    launch_calls_per_step: float | None
    gpu_ops_per_step: float | None
    gpu_idle_fraction: float | None
    bytes_per_step: int
    bandwidth: Bandwidth
    observer: Observer
    waterfall: tuple[WaterfallPart, ...]
    verdict: Verdict
    health: Health
    environment: dict[str, str | int | float | None]
