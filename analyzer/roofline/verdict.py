"""The bound of a decode step: one cause, the figures that show it, and what to do next. The figures
that decide come first.

- communication: communication that no other op covers is the largest part of the window.
- memory: the step reads its bytes at 60 % or more of the peak bandwidth.
- compute: the step does its FLOPs at 60 % or more of the datasheet's dense peak for its dtype.
- launch: host_wait, launch_call and launch_latency are more than 15 % of the window, and the median
  queue depth is at most 1.
- kernels: none of these; the kernels, with the gaps between them, stay below the bandwidth.
- unknown: none of the first four, and the bandwidth is unknown; the next step makes it known.

The first that holds is the bound; of memory and compute, the nearer to its peak. If the profiler
distorts the steps (`Observer.is_distorted`), the verdict rests on the unprofiled step: it is busy,
and idle for other causes than the host, for as long as a profiled one; the rest is the host's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from decodescope.analyzer.roofline.advice import (
    BOUND_ADVICE,
    GIVE_PEAK,
    GRAPH_ADVICE,
    LATE_ADVICE,
    NAME_MODEL,
    NARROW,
    RECORD,
    SMALL_GAPS_ADVICE,
    UNLINKED_ADVICE,
)
from decodescope.analyzer.roofline.peaks import step_bandwidth
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    Bound,
    CaptureInfo,
    DeviceReport,
    Observer,
    StepReport,
    Verdict,
)
from decodescope.analyzer.schema.step_report import StepCost
from decodescope.analyzer.text.formatting import duration

LAUNCH_BOUND_IDLE_SHARE = 0.15
LAUNCH_BOUND_QUEUE_DEPTH = 1.0
MEMORY_BOUND_MBU = 0.6
COMPUTE_BOUND_SHARE = 0.6
_LATE_CLASSES = ("host_wait", "launch_call", "launch_latency")
_IDLE_WORDS = {
    "unlinked": "idle before ops whose launch call is not in the trace",
    "graph_internal": "idle inside the graph",
    "host_wait": "waiting for the host",
    "launch_call": "idle inside launch calls",
    "kernel_floor": "the floor between kernels",
    "dependency": "waiting for another stream or an event",
    "launch_latency": "idle after launch calls",
}
_MIN_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Evidence:
    """The figures that a verdict rests on: devices and steps without interruptions. `capture`,
    `observer` and `cost` are None if unknown; `whole` names the devices' window in reasons."""

    devices: Sequence[DeviceReport]
    launches: LaunchReport
    steps: Sequence[StepReport]
    capture: CaptureInfo | None
    observer: Observer | None
    whole: str = "the window"
    cost: StepCost | None = None

    @property
    def step_words(self) -> str:
        """The step that reads its bytes, unprofiled if that one was timed, with its time."""
        unprofiled = self.observer is not None and self.observer.unprofiled_step_ns
        kind = "an unprofiled step" if unprofiled else "a profiled step"
        return f"{kind} ({duration(self.step_ns)})"

    @property
    def step_ns(self) -> int | None:
        return None if self.observer is None else self.observer.step_ns

    @property
    def is_distorted(self) -> bool:
        """Whether the profiler slowed the steps, so that the window does not show why they wait."""
        return self.observer is not None and self.observer.is_distorted

    @property
    def step_busy_ns(self) -> float:
        """Mean busy time of a profiled step; its kernels may overlap less than unprofiled ones."""
        busy_ns = [step.busy_ns for step in self.steps if step.gpu_ops]
        return sum(busy_ns) / len(busy_ns) if busy_ns else 0.0


def verdict(evidence: Evidence) -> Verdict:
    """Judge one window. The peak is the one measured with the capture, else the datasheet's."""
    capture = evidence.capture
    if not sum(device.window_ns for device in evidence.devices):
        reason = "no GPU activity in this trace"
        return Verdict("unknown", (reason,), ("record the GPU's activity (see the trace health)",))
    if capture is not None and capture.device == "cpu":
        reason = "device: cpu; leaf operators stand for GPU ops and are not launched"
        return Verdict("unknown", (reason,), ("run it on a GPU: `--device cuda`",))
    spent = _budget(evidence)
    memory, compute = _memory(evidence), _compute(evidence)
    bound = _bound(evidence, spent, memory, compute)
    reasons = [*_spent_reasons(evidence, spent, bound), ("memory", memory.reason)]
    if compute.reason:
        reasons.append(("compute", compute.reason))
    if bound in ("kernels", "unknown"):
        reasons.append(("kernels", _kernels_reason(evidence, spent)))
    decides = "memory" if bound == "unknown" else bound
    reasons.sort(key=lambda reason: reason[0] != decides)
    because = tuple(reason for _, reason in reasons)
    return Verdict(bound, because, tuple(_next(evidence, spent, bound)))


@dataclass(frozen=True, slots=True)
class _Budget:
    """Where the time goes, in ns: `idle_ns` by class and `busy_ns` add up to `total_ns`;
    `exposed_ns` is the part of busy in which only communication ran. `of` names the whole."""

    of: str
    total_ns: float
    busy_ns: float
    exposed_ns: float
    idle_ns: Mapping[str, float]

    def share(self, ns: float) -> float:
        return ns / self.total_ns

    @property
    def late_ns(self) -> float:
        return sum(self.idle_ns[name] for name in _LATE_CLASSES)


@dataclass(frozen=True, slots=True)
class _Nearness:
    """How near the step is to a peak (None if unknown), whether it is bound by it, and why."""

    share: float | None
    holds: bool
    reason: str


def _budget(evidence: Evidence) -> _Budget:
    """The window of all devices; under a profiler that distorts, the unprofiled step."""
    devices = evidence.devices
    idle = {
        name: sum(device.gaps[name].total_ns for device in devices if name in device.gaps)
        for name in GAP_CLASSES
    }
    busy_ns = sum(device.busy_ns for device in devices)
    exposed_ns = sum(device.exposed_communication_ns for device in devices)
    steps = [step for step in evidence.steps if step.gpu_ops]
    if not steps or evidence.observer is None or not evidence.is_distorted:
        window_ns = sum(device.window_ns for device in devices)
        return _Budget(evidence.whole, window_ns, busy_ns, exposed_ns, idle)
    total_ns = float(evidence.observer.unprofiled_step_ns or 0)
    step_busy_ns = min(evidence.step_busy_ns, total_ns)
    kept = {name: sum(step.gaps.get(name, 0) for step in steps) / len(steps) for name in idle}
    kept |= dict.fromkeys(_LATE_CLASSES, 0.0)
    room_ns = total_ns - step_busy_ns
    scale = min(room_ns / max(sum(kept.values()), 1.0), 1.0)
    kept = {name: ns * scale for name, ns in kept.items()}
    kept["host_wait"] = room_ns - sum(kept.values())
    exposed_ns = round(step_busy_ns * exposed_ns / busy_ns) if busy_ns else 0
    return _Budget("the unprofiled step", total_ns, step_busy_ns, exposed_ns, kept)


def _bound(evidence: Evidence, spent: _Budget, memory: _Nearness, compute: _Nearness) -> Bound:
    waits_ns = sum(spent.idle_ns.values()) - spent.late_ns
    others_ns = (spent.late_ns, waits_ns, spent.busy_ns - spent.exposed_ns)
    if spent.exposed_ns > max(others_ns):
        return "communication"
    if memory.holds or compute.holds:
        return "memory" if (memory.share or 0.0) >= (compute.share or 0.0) else "compute"
    # A profiler that distorts also empties the queue.
    depth = evidence.launches.median_queue_depth
    shallow = depth is not None and depth <= LAUNCH_BOUND_QUEUE_DEPTH
    late = spent.share(spent.late_ns) > LAUNCH_BOUND_IDLE_SHARE
    if late and (shallow or evidence.is_distorted):
        return "launch"
    return "unknown" if memory.share is None else "kernels"


def _spent_reasons(evidence: Evidence, spent: _Budget, bound: Bound) -> Iterator[tuple[Bound, str]]:
    share = spent.share(spent.late_ns)
    over = "over" if share > LAUNCH_BOUND_IDLE_SHARE else "not over"
    if spent.of == evidence.whole:
        late = f"host_wait + launch_call + launch_latency: {duration(round(spent.late_ns))}"
    else:
        late = f"idle for the host: {duration(round(spent.late_ns))}"
    yield "launch", f"{late}, {share:.1%} of {spent.of}, {over} {LAUNCH_BOUND_IDLE_SHARE:.0%}"
    observer = evidence.observer
    if observer is not None and evidence.is_distorted:
        yield (
            "launch",
            f"profiled steps took {observer.ratio:.2f} times as long as unprofiled ones: judged by "
            f"the unprofiled step ({duration(observer.unprofiled_step_ns)}) and the busy time of a "
            f"profiled one ({duration(round(evidence.step_busy_ns))})",
        )
    depth = evidence.launches.median_queue_depth
    if depth is None:
        yield "launch", "no launch call is linked to its work: queue depth unknown"
    elif not evidence.is_distorted:
        shallow = "at most" if depth <= LAUNCH_BOUND_QUEUE_DEPTH else "more than"
        reason = f"median queue depth: {depth:g}, {shallow} {LAUNCH_BOUND_QUEUE_DEPTH:g}"
        yield "launch", reason
    if spent.share(spent.exposed_ns) >= _MIN_SHARE:
        largest = "the largest part" if bound == "communication" else "not the largest part"
        yield (
            "communication",
            f"communication that nothing covers: {duration(round(spent.exposed_ns))}, "
            f"{spent.share(spent.exposed_ns):.1%} of {spent.of}, {largest}",
        )


def _near(share: float, least: float, rate: str, peak: str) -> _Nearness:
    holds = share >= least
    compared = "at least" if holds else "below"
    return _Nearness(share, holds, f"{rate}, {share:.1%} of the {peak}, {compared} {least:.0%}")


def _memory(evidence: Evidence) -> _Nearness:
    cost, step_ns = evidence.cost, evidence.step_ns
    if cost is None and evidence.capture is None:
        unknown = "the trace does not say how many bytes a step reads"
    elif cost is None or not step_ns:
        unknown = "no step time or no bytes per step"
    else:
        used = step_bandwidth(cost, step_ns)
        if used.mbu is not None:
            rate = f"{evidence.step_words} reads {used.achieved_bytes_per_s / 1e9:.1f} GB/s"
            peak = f"peak ({'measured' if cost.measured_peak_bytes_per_s else cost.peak_source})"
            return _near(used.mbu, MEMORY_BOUND_MBU, rate, peak)
        unknown = f"no peak known for {cost.device_name or 'this device'}"
    return _Nearness(None, False, f"bandwidth unknown: {unknown}")


def _compute(evidence: Evidence) -> _Nearness:
    cost, step_ns = evidence.cost, evidence.step_ns
    if cost is None or cost.flops_per_step is None or not step_ns:
        return _Nearness(None, False, "")
    flops_per_s = cost.flops_per_step * 1e9 / step_ns
    rate = f"{evidence.step_words} computes {flops_per_s / 1e12:.2f} TFLOP/s"
    if cost.peak_flops_per_s is None:
        name = cost.device_name or "this device"
        return _Nearness(None, False, f"{rate}; no {cost.dtype} peak known for {name}")
    peak = f"dense {cost.dtype} peak ({cost.peak_source})"
    return _near(flops_per_s / cost.peak_flops_per_s, COMPUTE_BOUND_SHARE, rate, peak)


def _kernels_reason(evidence: Evidence, spent: _Budget) -> str:
    """How much of the bandwidth the kernels reach while they run (the busy share if that is
    unknown), and the idle time by cause.

    Share reached = bytes ÷ peak ÷ busy time of a step.
    """
    cost, step_ns = evidence.cost, evidence.step_ns
    peak = cost.peak_bytes_per_s if cost else None
    parts = []
    busy_share = spent.share(spent.busy_ns)
    if cost and step_ns and peak and busy_share:
        reached = cost.bytes_per_step * 1e9 / peak / (step_ns * busy_share)
        parts.append(f"kernels reach {reached:.0%} of the bandwidth while they run")
    else:
        parts.append(f"the GPU is busy {busy_share:.0%} of {spent.of}")
    parts += [
        f"{spent.share(ns):.0%} of {spent.of} is {_IDLE_WORDS[name]}"
        for name, ns in sorted(spent.idle_ns.items(), key=lambda item: -item[1])
        if spent.share(ns) >= _MIN_SHARE
    ]
    return "; ".join(parts)


def _next(evidence: Evidence, spent: _Budget, bound: Bound) -> Iterator[str]:
    if spent.share(spent.idle_ns["unlinked"]) > LAUNCH_BOUND_IDLE_SHARE:
        yield UNLINKED_ADVICE
    if bound == "launch":
        yield _launch_advice(evidence)
    elif bound == "unknown" and evidence.capture is not None:
        known = evidence.step_ns and evidence.cost is not None
        yield RECORD + (
            "the measured peak of the GPU" if known else "the bytes and the time of a step"
        )
    elif bound == "unknown" and evidence.cost is not None:
        yield GIVE_PEAK
    elif bound == "unknown":
        yield f"{NAME_MODEL}; or {RECORD}the bytes of a step and the peak of the GPU"
    elif bound == "memory":
        yield _fewer_bytes(evidence.capture.variant if evidence.capture else "")
    else:
        yield BOUND_ADVICE[bound]
    small_ns = spent.idle_ns["graph_internal"] + spent.idle_ns["kernel_floor"]
    if bound in ("memory", "kernels") and spent.share(small_ns) >= 0.05:
        yield SMALL_GAPS_ADVICE


def _fewer_bytes(variant: str) -> str:
    """How a step reads less: what the variant's name does not say yet."""
    words = variant.split("+")
    of_cache = [word for word in words if word.startswith("kv_")]
    of_weights = [word for word in words if any(format_word in word for format_word in NARROW)]
    less = ["a shorter KV cache"]
    if not of_cache:
        less.insert(0, "K and V in FP8 (+kv_fp8_e4m3)")
    if of_weights == of_cache:
        less.insert(0, "FP8 or INT8 weights")
    return (
        f"only fewer bytes make it faster: {', '.join(less)}; a larger batch reads the weights "
        "once for more tokens"
    )


def _launch_advice(evidence: Evidence) -> str:
    """Advice about the largest part of the late time."""
    late_ns = dict.fromkeys(LATE_ADVICE, 0)
    for device in evidence.devices:
        for name, total in device.host_wait.items():
            late_ns[name] += total.total_ns
        for name in ("launch_call", "launch_latency"):
            late_ns["python"] += device.gaps[name].total_ns
    largest = max(late_ns, key=lambda name: late_ns[name])
    launches = evidence.launches
    if largest == "python" and 2 * launches.graph_launches > launches.calls:
        return GRAPH_ADVICE
    return LATE_ADVICE[largest]
