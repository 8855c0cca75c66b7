"""What bounds a decode step, with the conditions that held and their figures.

Launch-bound: host_wait and launch_latency gaps are more than 15 % of the window and the median
queue depth is at most 1. Memory-bound: the step reads its bytes at 60 % or more of the peak
bandwidth. A verdict is only given where its inputs are known.
"""

from collections.abc import Sequence

from decodescope.analyzer.bandwidth import MEMORY_BOUND_MBU, bandwidth, datasheet_peak
from decodescope.analyzer.report import Bound, CaptureInfo, DeviceReport, LaunchReport, Verdict

LAUNCH_BOUND_IDLE_SHARE = 0.15
LAUNCH_BOUND_QUEUE_DEPTH = 1.0
_LATE_CLASSES = ("host_wait", "launch_latency")


def verdict(
    devices: Sequence[DeviceReport],
    launches: LaunchReport,
    capture: CaptureInfo | None,
    step_ns: int | None,
) -> Verdict:
    """Judge one window.

    `step_ns` is the step time that the bytes of `capture` are read in, unprofiled where known.
    The peak is the one measured with the capture, for lack of it the datasheet's.
    """
    window_ns = sum(device.window_ns for device in devices)
    if not window_ns:
        return Verdict("unknown", ("no GPU activity in this trace",))
    if capture is not None and capture.device == "cpu":
        return Verdict(
            "unknown", ("device: cpu; leaf operators stand for GPU ops and are not launched",)
        )
    launch_bound, because = _launch_condition(devices, window_ns, launches)
    memory_bound, reason = _memory_condition(capture, step_ns)
    because.append(reason)
    return Verdict(_bound(launch_bound, memory_bound), tuple(because))


def _bound(launch_bound: bool | None, memory_bound: bool | None) -> Bound:
    if launch_bound and memory_bound:
        return "mixed"
    if launch_bound:
        return "launch"
    if memory_bound:
        return "memory"
    if launch_bound is None or memory_bound is None:
        return "unknown"
    return "mixed"


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


def _memory_condition(capture: CaptureInfo | None, step_ns: int | None) -> tuple[bool | None, str]:
    if capture is None:
        return None, "bandwidth unknown: the trace does not say how many bytes a step reads"
    if not step_ns or capture.bytes_per_step <= 0:
        return None, "bandwidth unknown: no step time or no bytes per step"
    sheet = datasheet_peak(capture.device_name)
    used = bandwidth(
        capture.bytes_per_step,
        step_ns,
        capture.measured_peak_bytes_per_s,
        sheet.bytes_per_s if sheet else None,
    )
    if used.mbu is None:
        return None, f"bandwidth unknown: no peak known for {capture.device_name}"
    name = "measured" if used.mbu_of == "measured" or sheet is None else sheet.source
    bound = used.mbu >= MEMORY_BOUND_MBU
    return bound, (
        f"reads {used.achieved_bytes_per_s / 1e9:.1f} GB/s, {used.mbu:.1%} of the peak ({name}), "
        f"{'at least' if bound else 'below'} {MEMORY_BOUND_MBU:.0%}"
    )
