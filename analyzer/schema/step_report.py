"""The structures of a step: its kind, interruptions, layers, roles, work and bandwidth."""

from typing import Literal

from msgspec import Struct

StructureSource = Literal["ranges", "capture", "annotations", "repetition", "none"]
Confidence = Literal["exact", "partial", "none"]
StepKind = Literal["decode", "prefill", "mixed", "draft", "verify", "unknown"]
LayerPlace = Literal["prologue", "epilogue", "outside"]


class StepReport(Struct, frozen=True):
    """One decode step. `host_ns` is the host marker's length; of a step without a marker, it is the
    time from the start of its first launch call to the end of its last one. `gpu_span_ns` is the
    time from the first start to the last end of the ops it launched. Busy and idle time are inside
    the GPU span, and so are `gaps`, the ns of each class that occurred (they add up to `idle_ns`).
    A step on several devices is busy when any of them is. `kind`, `batch` and `kv_tokens` are what
    its annotations, Python frames or kernels tell, null where they do not (see `StepKindReport`).

    `time_ns` is from the start of its first GPU op to that of the next step, of the last step its
    GPU span, without interruptions, which take `interrupted_ns`; null without ops. In a trace
    without a single op, it is from its host start to that of the next step. The step time of
    the trace is the median over the steps that are `timed`: those of the main kind that another
    step follows, if there are any."""

    index: int
    name: str
    host_ns: int | None
    gpu_span_ns: int | None
    busy_ns: int
    idle_ns: int | None
    launch_calls: int
    gpu_ops: int
    gaps: dict[str, int] = {}
    time_ns: int | None = None
    timed: bool = False
    kind: StepKind = "unknown"
    batch: int | None = None
    kv_tokens: int | None = None
    interrupted_ns: int = 0


class StepKindReport(Struct, frozen=True):
    """The steps of one kind and batch size (requests), null if unknown.

    `kv_tokens` is the sum of the KV lengths of all requests of a step, including the tokens that it
    computes, `query_tokens` that of the tokens it computes: each the (lower) median over those of
    the steps that tell, null if none does. `median_ns`, `min_ns` and `p99_ns` are of the step
    times, by the rule of `Answer.step_ns`; null if none of the steps launched an op. `gpu_ops` are
    the ops that the steps launched, and `attributed_ns` their attributed time (see `KernelReport`).
    """

    kind: StepKind
    steps: int
    batch: int | None
    kv_tokens: int | None
    query_tokens: int | None
    median_ns: int | None
    min_ns: int | None = None
    p99_ns: int | None = None
    gpu_ops: int = 0
    attributed_ns: int = 0


class InterruptionReport(Struct, frozen=True):
    """Time in which a device was interrupted by something that does not belong to the steps.

    `at_ns` is after the device's first op, `ns` the time set apart: the excess over what is usual.
    `call` is the host call that took it, null if none did, `step` the step of the op that ended it
    or ran long. `evidence` is a sentence. `cause` is one of:

    - wait: a call, or a stream, that waits for an event or a device
    - first_replay: the first launch of a graph in the trace
    - module_loading: kernels are loaded
    - graph_upload: a graph is made executable, changed or uploaded
    - graph_capture: the host captures a graph
    - allocation: memory is allocated, freed or registered
    - profiler: a pause that the profiler reports
    - launch, call: one launch call, or another call, that took far longer than the others
    - late_start: launched in time, begun late
    - long_op: one kernel that ran far longer than the others at its place
    - window_edge: before the first or after the last step, unexplained
    - unlinked: before an op whose launch call is not in the trace
    - host: the launching thread was outside of any call
    """

    at_ns: int
    ns: int
    call: str | None
    cause: str
    evidence: str
    device: int | str
    step: int | None = None


class StructureReport(Struct, frozen=True):
    """The ops of the median decode step (`step`, an index in `steps`) by layer.

    `prologue_ops` before the first of `layers` layers, `epilogue_ops` after the last one. The
    layers are of one or several motifs: `layer_ops` holds the number of ops of each, in order of
    appearance, `motif_layers` the number of its layers. `source` says what the layers were found
    by; where ranges name layers, the repetition of names was checked against them. `confidence` is
    "exact" if ranges confirm every boundary or, without ranges, if each layer has exactly the ops
    of another one; else "partial"; "none" without layers.
    """

    source: StructureSource
    layers: int
    prologue_ops: int
    layer_ops: tuple[int, ...]
    epilogue_ops: int
    confidence: Confidence
    motif_layers: tuple[int, ...] = ()
    step: int | None = None


class LayerReport(Struct, frozen=True):
    """One layer in the median decode step: `ns_per_step` is attributed time, of all devices of the
    step. The ops before the first layer are the "prologue", those behind the last the "epilogue";
    "outside" are ops of other steps that reach into this one, and those of devices without layers.
    All of them together add up to the step's busy time exactly, as the parts with kernels do.
    `motif` counts from 0 in order of appearance, null outside of layers."""

    layer: int | LayerPlace
    motif: int | None
    ops: int
    ns_per_step: int


class StepCost(Struct, frozen=True):
    """The work of the step that stands for a trace, and the peaks of its device.

    `source` says who knows the bytes and FLOPs: the "capture" (decodescope's own runs), the
    "model" that the user named, or a "guess" of the model, for which `evidence` lists what fits.
    `bytes_per_step` are the weights and the KV cache that it reads at least, `flops_per_step`
    counts a multiply-add as two; with `is_lower_bound` they are those of one request, or of no
    cache, because the batch or the KV length is unknown. `batch_by_shapes`: the rows of products or
    of logits say the batch. `measured_peak_bytes_per_s` is the read bandwidth measured in that run;
    without it, `datasheet_peak_bytes_per_s` decides, which `peak_source` names ("--peak" for one
    that the user gave). What is unknown is null.
    """

    source: Literal["capture", "model", "guess"]
    model: str
    dtype: str
    bytes_per_step: int
    flops_per_step: int | None
    batch: int | None = None
    kv_tokens: int | None = None
    query_tokens: int | None = None
    weights: str | None = None
    tensor_parallel: int = 1
    device_name: str = ""
    measured_peak_bytes_per_s: float | None = None
    datasheet_peak_bytes_per_s: float | None = None
    peak_flops_per_s: float | None = None
    peak_source: str | None = None
    is_lower_bound: bool = False
    batch_by_shapes: bool = False
    evidence: tuple[str, ...] = ()

    @property
    def peak_bytes_per_s(self) -> float | None:
        """The measured peak, else the datasheet's or the user's."""
        return self.measured_peak_bytes_per_s or self.datasheet_peak_bytes_per_s

    @property
    def is_certain(self) -> bool:
        """Whether rates can follow from it: the model is no guess, and its work is not only a lower
        bound."""
        return self.source != "guess" and not self.is_lower_bound


class Bandwidth(Struct, frozen=True):
    """MBU = achieved / measured peak (datasheet peak if none was measured; `mbu_of` says which).

    `achieved_bytes_per_s` = bytes a step must read / median unprofiled step time.
    """

    achieved_bytes_per_s: float
    measured_peak_bytes_per_s: float | None
    datasheet_peak_bytes_per_s: float | None
    mbu: float | None
    mbu_of: Literal["measured", "datasheet"] | None
