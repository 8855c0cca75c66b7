"""Memory bandwidth: what a device can do on paper, and what share of it a step used.

MBU = bytes a step must read / step time / peak bandwidth.
"""

import re
from dataclasses import dataclass

from decodescope.analyzer.run_report import Bandwidth

MEMORY_BOUND_MBU = 0.6


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """Memory bandwidth as the vendor states it, and where."""

    device: str
    bytes_per_s: float
    source: str


def _peak(device: str, gigabytes_per_s: float, source: str) -> DatasheetPeak:
    return DatasheetPeak(device, gigabytes_per_s * 1e9, source)


_PEAKS: tuple[tuple[str, DatasheetPeak], ...] = (
    (r"\bB300\b", _peak("B300", 8000, "NVIDIA Blackwell Ultra datasheet")),
    (r"\bGB200\b", _peak("GB200", 8000, "NVIDIA GB200 NVL72 datasheet (per GPU)")),
    (r"\bB200\b", _peak("B200", 8000, "NVIDIA Blackwell datasheet")),
    (r"\bGH200\b.*144", _peak("GH200 144GB", 4900, "NVIDIA GH200 datasheet")),
    (r"\bGH200\b", _peak("GH200 96GB", 4000, "NVIDIA GH200 datasheet")),
    (r"\bH200\b", _peak("H200", 4800, "NVIDIA H200 datasheet")),
    (r"\bH100\b.*NVL", _peak("H100 NVL", 3900, "NVIDIA H100 datasheet")),
    (r"\bH100\b.*PCIe", _peak("H100 PCIe", 2000, "NVIDIA H100 PCIe datasheet")),
    (r"\bH100\b", _peak("H100 SXM", 3350, "NVIDIA H100 datasheet")),
    (r"\bA100\b.*80GB PCIe", _peak("A100 80GB PCIe", 1935, "NVIDIA A100 80GB datasheet")),
    (r"\bA100\b.*80GB", _peak("A100 80GB SXM", 2039, "NVIDIA A100 80GB datasheet")),
    (r"\bA100\b.*40GB", _peak("A100 40GB", 1555, "NVIDIA A100 40GB datasheet")),
    (r"\bL40S\b", _peak("L40S", 864, "NVIDIA L40S datasheet")),
    (r"\bL40\b", _peak("L40", 864, "NVIDIA L40 datasheet")),
    (r"\bL4\b", _peak("L4", 300, "NVIDIA L4 datasheet")),
    (r"\bA10G?\b", _peak("A10", 600, "NVIDIA A10 datasheet")),
    (r"\bA30\b", _peak("A30", 933, "NVIDIA A30 datasheet")),
    (r"\bA40\b", _peak("A40", 696, "NVIDIA A40 datasheet")),
    (r"\bT4\b", _peak("T4", 320, "NVIDIA T4 product brief")),
    (r"\bV100S\b", _peak("V100S", 1134, "NVIDIA V100 datasheet")),
    (r"\bV100\b", _peak("V100", 900, "NVIDIA V100 datasheet")),
    (r"\bRTX 3090 Ti\b", _peak("RTX 3090 Ti", 1008, "NVIDIA GeForce RTX 3090 Ti specifications")),
    (r"\bRTX 3090\b", _peak("RTX 3090", 936, "NVIDIA GeForce RTX 3090 specifications")),
    (r"\bRTX 4090 D\b", _peak("RTX 4090 D", 1008, "NVIDIA GeForce RTX 4090 D specifications")),
    (r"\bRTX 4090\b", _peak("RTX 4090", 1008, "NVIDIA GeForce RTX 4090 specifications")),
    (r"\bRTX 5090\b", _peak("RTX 5090", 1792, "NVIDIA GeForce RTX 5090 specifications")),
    (r"\bMI355X\b", _peak("MI355X", 8000, "AMD Instinct MI355X datasheet")),
    (r"\bMI325X\b", _peak("MI325X", 6000, "AMD Instinct MI325X datasheet")),
    (r"\bMI300X\b", _peak("MI300X", 5300, "AMD Instinct MI300X datasheet")),
)
_LAPTOP = re.compile(r"laptop|mobile|max-q", re.IGNORECASE)


def datasheet_peak(device_name: str) -> DatasheetPeak | None:
    """The vendor's figure for a device as the driver names it, None where none is certain.

    Laptop parts share names with desktop ones but not their memory, so they get none.
    """
    if _LAPTOP.search(device_name):
        return None
    for pattern, peak in _PEAKS:
        if re.search(pattern, device_name, re.IGNORECASE):
            return peak
    return None


def datasheet_peak_bytes_per_s(device_name: str) -> float | None:
    """Peak memory bandwidth in bytes/s by device name, or None."""
    peak = datasheet_peak(device_name)
    return peak.bytes_per_s if peak else None


def achieved_bytes_per_s(bytes_per_step: int, step_ns: int) -> float:
    """bytes / time; 0 for a step that took no time."""
    return bytes_per_step * 1e9 / step_ns if step_ns > 0 else 0.0


def bandwidth(
    bytes_per_step: int,
    step_ns: int,
    measured_peak_bytes_per_s: float | None,
    datasheet_peak_bytes_per_s: float | None,
) -> Bandwidth:
    """Achieved bandwidth and MBU, against the measured peak where there is one."""
    achieved = achieved_bytes_per_s(bytes_per_step, step_ns)
    peak = measured_peak_bytes_per_s or datasheet_peak_bytes_per_s
    return Bandwidth(
        achieved_bytes_per_s=achieved,
        measured_peak_bytes_per_s=measured_peak_bytes_per_s,
        datasheet_peak_bytes_per_s=datasheet_peak_bytes_per_s,
        mbu=achieved / peak if peak else None,
        mbu_of=None if not peak else ("measured" if measured_peak_bytes_per_s else "datasheet"),
    )
