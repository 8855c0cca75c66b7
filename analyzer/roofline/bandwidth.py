"""Memory bandwidth: the share of a device's peak that a step reached.

MBU = bytes a step must read / step time / peak bandwidth.
"""

from decodescope.analyzer.roofline.datasheet import datasheet_peak_bytes_per_s
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.analyzer.schema.run_report import Bandwidth


def peak_bytes_per_s(capture: CaptureInfo | None, device_name: str) -> float | None:
    """The peak measured with the capture, else the datasheet's, else None."""
    measured = capture.measured_peak_bytes_per_s if capture is not None else None
    return measured or datasheet_peak_bytes_per_s(device_name)


def bandwidth(
    bytes_per_step: int,
    step_ns: int,
    measured_peak_bytes_per_s: float | None,
    datasheet_peak_bytes_per_s: float | None,
) -> Bandwidth:
    """Achieved bandwidth (0 for a step that took no time) and MBU, against the measured peak if
    there is one."""
    achieved = bytes_per_step * 1e9 / step_ns if step_ns > 0 else 0.0
    peak = measured_peak_bytes_per_s or datasheet_peak_bytes_per_s
    return Bandwidth(
        achieved_bytes_per_s=achieved,
        measured_peak_bytes_per_s=measured_peak_bytes_per_s,
        datasheet_peak_bytes_per_s=datasheet_peak_bytes_per_s,
        mbu=achieved / peak if peak else None,
        mbu_of=None if not peak else ("measured" if measured_peak_bytes_per_s else "datasheet"),
    )
