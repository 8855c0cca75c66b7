"""What bounds a decode step, with the conditions that held and their figures.

Launch-bound: host_wait and launch_latency gaps are more than 15 % of the window and the median
queue depth is at most 1. Memory-bound: the step reads its bytes at 60 % or more of the peak
bandwidth. Compute-bound: it does its FLOPs at 60 % or more of the datasheet's dense peak for its
dtype. Mixed: several of these hold, or none; the reasons then say what dominates. Without its
inputs there is no verdict.
"""

from collections.abc import Sequence

from decodescope.analyzer.roofline.peaks import bandwidth, datasheet_peak
from decodescope.analyzer.schema.launch_report import LaunchReport
from decodescope.analyzer.schema.report import (
    GAP_CLASSES,
    Bound,
    CaptureInfo,
    DeviceReport,
    Verdict,
)

LAUNCH_BOUND_IDLE_SHARE = 0.15
LAUNCH_BOUND_QUEUE_DEPTH = 1.0
MEMORY_BOUND_MBU = 0.6
COMPUTE_BOUND_SHARE = 0.6
_LATE_CLASSES = ("host_wait", "launch_latency")


def verdict(
    devices: Sequence[DeviceReport],
    launches: LaunchReport,
    capture: CaptureInfo | None,
    step_ns: int | None,
) -> Verdict:
    """Judge one window.

    `step_ns` is the time in which a step reads the bytes of `capture`, unprofiled if known. The
    peak is the one measured with the capture, else the datasheet's.
    """
    window_ns = sum(device.window_ns for device in devices)
    if not window_ns:
        return Verdict("unknown", ("no GPU activity in this trace",))
    if capture is not None and capture.device == "cpu":
        return Verdict(
            "unknown", ("device: cpu; leaf operators stand for GPU ops and are not launched",)
        )
    launch_bound, because = _launch_condition(devices, window_ns, launches)
    memory_bound, reason, mbu = _memory_condition(capture, step_ns)
    compute_bound, arithmetic = _compute_condition(capture, step_ns)
    because += [reason, *arithmetic]
    bound = _bound(launch_bound, memory_bound, compute_bound)
    if bound == "mixed" and mbu is not None and not (launch_bound or memory_bound):
        because.append(_dominant(devices, window_ns, mbu))
    return Verdict(bound, tuple(because))


def _bound(launch: bool | None, memory: bool | None, compute: bool | None) -> Bound:
    """Unknown arithmetic leaves the decision to the others: decode steps rarely near its peak."""
    conditions: tuple[tuple[Bound, bool | None], ...]
    conditions = (("launch", launch), ("memory", memory), ("compute", compute))
    holding = [bound for bound, holds in conditions if holds]
    if holding:
        return holding[0] if len(holding) == 1 else "mixed"
    return "unknown" if launch is None or memory is None else "mixed"


def _launch_condition(
    devices: Sequence[DeviceReport], window_ns: int, launches: LaunchReport
) -> tuple[bool | None, list[str]]:
    late_ns = sum(device.gaps[name].total_ns for device in devices for name in _LATE_CLASSES)
    share = late_ns / window_ns
    late = share > LAUNCH_BOUND_IDLE_SHARE
    because = [
        f"host_wait + launch_latency: {late_ns / 1e6:.3f} ms, {share:.1%} of the window, "
        f"{'over' if late else 'not over'} {LAUNCH_BOUND_IDLE_SHARE:.0%}"
    ]
    depth = launches.median_queue_depth
    if depth is None:
        because.append("no launch call is linked to its work: queue depth unknown")
        return (None if late else False), because
    shallow = depth <= LAUNCH_BOUND_QUEUE_DEPTH
    because.append(
        f"median queue depth: {depth:g}, "
        f"{'at most' if shallow else 'more than'} {LAUNCH_BOUND_QUEUE_DEPTH:g}"
    )
    return late and shallow, because


def _memory_condition(
    capture: CaptureInfo | None, step_ns: int | None
) -> tuple[bool | None, str, float | None]:
    """Whether the step is memory-bound, the reason, and its MBU."""
    if capture is None:
        return None, "bandwidth unknown: the trace does not say how many bytes a step reads", None
    if not step_ns or capture.bytes_per_step <= 0:
        return None, "bandwidth unknown: no step time or no bytes per step", None
    sheet, measured = datasheet_peak(capture.device_name), capture.measured_peak_bytes_per_s
    on_paper = sheet.bytes_per_s if sheet else None
    used = bandwidth(capture.bytes_per_step, step_ns, measured, on_paper)
    if used.mbu is None:
        return None, f"bandwidth unknown: no peak known for {capture.device_name}", None
    name = "measured" if measured or sheet is None else sheet.source
    bound = used.mbu >= MEMORY_BOUND_MBU
    reason = (
        f"reads {used.achieved_bytes_per_s / 1e9:.1f} GB/s, {used.mbu:.1%} of the peak ({name}), "
        f"{'at least' if bound else 'below'} {MEMORY_BOUND_MBU:.0%}"
    )
    return bound, reason, used.mbu


def _compute_condition(
    capture: CaptureInfo | None, step_ns: int | None
) -> tuple[bool | None, list[str]]:
    if capture is None or capture.flops_per_step is None or not step_ns:
        return None, []
    flops_per_s = capture.flops_per_step * 1e9 / step_ns
    done = f"computes {flops_per_s / 1e12:.2f} TFLOP/s"
    sheet = datasheet_peak(capture.device_name)
    peak = sheet.flops_per_s.get(capture.dtype) if sheet else None
    if sheet is None or peak is None:
        return None, [f"{done}; no {capture.dtype} peak known for {capture.device_name}"]
    share = flops_per_s / peak
    bound = share >= COMPUTE_BOUND_SHARE
    return bound, [
        f"{done}, {share:.1%} of the dense {capture.dtype} peak ({sheet.source}), "
        f"{'at least' if bound else 'below'} {COMPUTE_BOUND_SHARE:.0%}"
    ]


def _dominant(devices: Sequence[DeviceReport], window_ns: int, mbu: float) -> str:
    """What takes most of a window that no condition bounds: its kernels, or a class of gaps."""
    busy = sum(device.busy_ns for device in devices) / window_ns
    if busy >= 0.5:
        return (
            f"kernels are busy {busy:.1%} of the window but a step reads at {mbu:.1%} of the "
            "peak: the kernels themselves are inefficient"
        )
    idle = {name: sum(d.gaps[name].total_ns for d in devices) / window_ns for name in GAP_CLASSES}
    largest = max(idle, key=lambda name: idle[name])
    return (
        f"devices are idle {1 - busy:.1%} of the window, most of it {largest} "
        f"({idle[largest]:.1%} of the window)"
    )
