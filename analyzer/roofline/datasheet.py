"""What devices can do on paper: memory bandwidth and dense arithmetic, as vendors state them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """A device's peaks and the document that states them.

    `flops_per_s` holds what the matrix units reach on dense operands ("fp32": what the vector units
    reach), by dtype: "bf16", "fp16", "fp8", "fp32"; a dtype without a certain figure is missing.
    Datasheets that print figures with structured sparsity only are halved.
    """

    device: str
    bytes_per_s: float
    source: str
    flops_per_s: Mapping[str, float] = field(default_factory=dict)


def _peak(
    device: str,
    gigabytes_per_s: float,
    source: str,
    *,
    half: float | None = None,
    fp16: float | None = None,
    fp8: float | None = None,
    fp32: float | None = None,
) -> DatasheetPeak:
    """`half` (bf16 and fp16), `fp16` (devices without bf16), `fp8`, `fp32` in TFLOP/s."""
    teraflops = {"bf16": half, "fp16": fp16 or half, "fp8": fp8, "fp32": fp32}
    flops_per_s = {dtype: value * 1e12 for dtype, value in teraflops.items() if value is not None}
    return DatasheetPeak(device, gigabytes_per_s * 1e9, source, flops_per_s)


_GA102 = "NVIDIA Ampere GA102 architecture whitepaper"
_AD102 = "NVIDIA Ada architecture whitepaper"
_GB202 = "NVIDIA RTX Blackwell architecture whitepaper"

_PEAKS: tuple[tuple[str, DatasheetPeak], ...] = (
    (r"\bB300\b", _peak("B300", 8000, "NVIDIA Blackwell Ultra datasheet",
                        half=2250, fp8=4500, fp32=75)),
    (r"\bGB200\b", _peak("GB200", 8000, "NVIDIA GB200 NVL72 datasheet (per GPU)",
                         half=2500, fp8=5000, fp32=80)),
    (r"\bB200\b", _peak("B200", 8000, "NVIDIA Blackwell datasheet",
                        half=2250, fp8=4500, fp32=75)),
    (r"\bGH200\b.*144", _peak("GH200 144GB", 4900, "NVIDIA GH200 datasheet",
                              half=990, fp8=1979, fp32=67)),
    (r"\bGH200\b", _peak("GH200 96GB", 4000, "NVIDIA GH200 datasheet",
                         half=990, fp8=1979, fp32=67)),
    (r"\bH200\b.*NVL", _peak("H200 NVL", 4800, "NVIDIA H200 datasheet",
                             half=835.5, fp8=1670.5, fp32=60)),
    (r"\bH200\b", _peak("H200", 4800, "NVIDIA H200 datasheet", half=989.5, fp8=1979, fp32=67)),
    (r"\bH100\b.*NVL", _peak("H100 NVL", 3900, "NVIDIA H100 datasheet",
                             half=835.5, fp8=1670.5, fp32=60)),
    (r"\bH100\b.*PCIe", _peak("H100 PCIe", 2000, "NVIDIA H100 PCIe datasheet",
                              half=756.5, fp8=1513, fp32=51)),
    (r"\bH100\b", _peak("H100 SXM", 3350, "NVIDIA H100 datasheet",
                        half=989.5, fp8=1979, fp32=67)),
    (r"\bA100\b.*80GB PCIe", _peak("A100 80GB PCIe", 1935, "NVIDIA A100 80GB datasheet",
                                   half=312, fp32=19.5)),
    (r"\bA100\b.*80GB", _peak("A100 80GB SXM", 2039, "NVIDIA A100 80GB datasheet",
                              half=312, fp32=19.5)),
    (r"\bA100\b.*40GB", _peak("A100 40GB", 1555, "NVIDIA A100 40GB datasheet",
                              half=312, fp32=19.5)),
    (r"\bL40S\b", _peak("L40S", 864, "NVIDIA L40S datasheet", half=362, fp8=733, fp32=91.6)),
    (r"\bL40\b", _peak("L40", 864, "NVIDIA L40 datasheet", half=181, fp8=362, fp32=90.5)),
    (r"\bL4\b", _peak("L4", 300, "NVIDIA L4 datasheet", half=121, fp8=242.5, fp32=30.3)),
    (r"\bA10G\b", _peak("A10G", 600, "NVIDIA A10 datasheet (same memory)")),
    (r"\bA10\b", _peak("A10", 600, "NVIDIA A10 datasheet", half=125, fp32=31.2)),
    (r"\bA30\b", _peak("A30", 933, "NVIDIA A30 datasheet", half=165, fp32=10.3)),
    (r"\bA40\b", _peak("A40", 696, "NVIDIA A40 datasheet", half=149.7, fp32=37.4)),
    (r"\bT4\b", _peak("T4", 320, "NVIDIA T4 product brief", fp16=65, fp32=8.1)),
    (r"\bV100S\b", _peak("V100S", 1134, "NVIDIA V100 datasheet", fp16=130, fp32=16.4)),
    (r"\bV100\b.*SXM", _peak("V100 SXM2", 900, "NVIDIA V100 datasheet", fp16=125, fp32=15.7)),
    (r"\bV100\b.*PCIe", _peak("V100 PCIe", 900, "NVIDIA V100 datasheet", fp16=112, fp32=14)),
    (r"\bV100\b", _peak("V100", 900, "NVIDIA V100 datasheet")),
    (r"\bRTX 3090 Ti\b", _peak("RTX 3090 Ti", 1008, "NVIDIA GeForce RTX 3090 Ti specifications")),
    (r"\bRTX 3090\b", _peak("RTX 3090", 936, _GA102, half=71, fp32=35.6)),
    (r"\bRTX 4090 D\b", _peak("RTX 4090 D", 1008, "NVIDIA GeForce RTX 4090 D specifications")),
    (r"\bRTX 4090\b", _peak("RTX 4090", 1008, _AD102, half=165.2, fp8=330.3, fp32=82.6)),
    (r"\bRTX 5090\b", _peak("RTX 5090", 1792, _GB202, half=209.5, fp8=419, fp32=104.8)),
    (r"\bMI355X\b", _peak("MI355X", 8000, "AMD Instinct MI355X datasheet",
                          half=2516.6, fp8=5033.2, fp32=157.3)),
    (r"\bMI325X\b", _peak("MI325X", 6000, "AMD Instinct MI325X datasheet",
                          half=1307.4, fp8=2614.9, fp32=163.4)),
    (r"\bMI300X\b", _peak("MI300X", 5300, "AMD Instinct MI300X datasheet",
                          half=1307.4, fp8=2614.9, fp32=163.4)),
)  # fmt: skip
_LAPTOP = re.compile(r"laptop|mobile|max-q", re.IGNORECASE)


def datasheet_peak(device_name: str) -> DatasheetPeak | None:
    """The vendor's figures for a device as the driver names it, None where none is certain.

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


def datasheet_peak_flops_per_s(device_name: str, dtype: str) -> float | None:
    """Peak dense FLOP/s of `dtype` ("bf16", "fp16", "fp8", "fp32") by device name, or None."""
    peak = datasheet_peak(device_name)
    return peak.flops_per_s.get(dtype) if peak else None


def slowest_peak_flops_per_s(device_name: str) -> float | None:
    """The least of a device's dense peaks: what it reaches whatever the dtype, or None."""
    peak = datasheet_peak(device_name)
    return min(peak.flops_per_s.values(), default=None) if peak else None
