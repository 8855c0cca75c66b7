"""Peaks of devices, from datasheets or as a user gives them, and the share that a step reached.

MBU = bytes a step must read / step time / peak bandwidth. Datasheet peaks are the vendors' figures
for memory bandwidth and dense arithmetic.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.step_report import Bandwidth
from decodescope.analyzer.text.plain import plain_line

# The source of a peak that the user gave.
GIVEN_PEAK = "--peak"
DTYPES = ("bf16", "fp16", "fp8", "fp32")
_A100 = "NVIDIA A100 80GB datasheet"
_GA102 = "NVIDIA Ampere GA102 architecture whitepaper"
_AD102 = "NVIDIA Ada architecture whitepaper"
# The driver shows each die of an MI250 as a device of its own.
_MI200 = "AMD Instinct MI200 series datasheet"
_GB202 = "NVIDIA RTX Blackwell architecture whitepaper"
# Pattern of the driver's device name, GB/s, TFLOP/s by `DTYPES` (() if unknown), source.
_PEAKS: tuple[tuple[str, float, tuple[float | None, ...], str], ...] = (
    (r"\bB300\b", 8000, (2250, 2250, 4500, 75), "NVIDIA Blackwell Ultra datasheet"),
    (r"\bGB200\b", 8000, (2500, 2500, 5000, 80), "NVIDIA GB200 NVL72 datasheet (per GPU)"),
    (r"\bB200\b", 8000, (2250, 2250, 4500, 75), "NVIDIA Blackwell datasheet"),
    (r"\bGH200\b.*144", 4900, (990, 990, 1979, 67), "NVIDIA GH200 datasheet"),
    (r"\bGH200\b", 4000, (990, 990, 1979, 67), "NVIDIA GH200 datasheet"),
    (r"\bH200\b.*NVL", 4800, (835.5, 835.5, 1670.5, 60), "NVIDIA H200 datasheet"),
    (r"\bH200\b", 4800, (989.5, 989.5, 1979, 67), "NVIDIA H200 datasheet"),
    (r"\bH100\b.*NVL", 3900, (835.5, 835.5, 1670.5, 60), "NVIDIA H100 datasheet"),
    (r"\bH100\b.*PCIe", 2000, (756.5, 756.5, 1513, 51), "NVIDIA H100 PCIe datasheet"),
    (r"\bH100\b", 3350, (989.5, 989.5, 1979, 67), "NVIDIA H100 datasheet"),
    (r"\bA100\b.*80GB PCIe", 1935, (312, 312, None, 19.5), _A100),
    (r"\bA100\b.*80GB", 2039, (312, 312, None, 19.5), _A100),
    (r"\bA100\b.*40GB", 1555, (312, 312, None, 19.5), "NVIDIA A100 40GB datasheet"),
    (r"\bL40S\b", 864, (362, 362, 733, 91.6), "NVIDIA L40S datasheet"),
    (r"\bL40\b", 864, (181, 181, 362, 90.5), "NVIDIA L40 datasheet"),
    (r"\bL4\b", 300, (121, 121, 242.5, 30.3), "NVIDIA L4 datasheet"),
    (r"\bA10G\b", 600, (), "NVIDIA A10 datasheet (same memory)"),
    (r"\bA10\b", 600, (125, 125, None, 31.2), "NVIDIA A10 datasheet"),
    (r"\bA30\b", 933, (165, 165, None, 10.3), "NVIDIA A30 datasheet"),
    (r"\bA40\b", 696, (149.7, 149.7, None, 37.4), "NVIDIA A40 datasheet"),
    (r"\bT4\b", 320, (None, 65, None, 8.1), "NVIDIA T4 product brief"),
    (r"\bV100S\b", 1134, (None, 130, None, 16.4), "NVIDIA V100 datasheet"),
    (r"\bV100\b.*SXM", 900, (None, 125, None, 15.7), "NVIDIA V100 datasheet"),
    (r"\bV100\b.*PCIe", 900, (None, 112, None, 14), "NVIDIA V100 datasheet"),
    (r"\bV100\b", 900, (), "NVIDIA V100 datasheet"),
    (r"\bRTX 3090 Ti\b", 1008, (), "NVIDIA GeForce RTX 3090 Ti specifications"),
    (r"\bRTX 3090\b", 936, (71, 71, None, 35.6), _GA102),
    (r"\bRTX 4090 D\b", 1008, (), "NVIDIA GeForce RTX 4090 D specifications"),
    (r"\bRTX 4090\b", 1008, (165.2, 165.2, 330.3, 82.6), _AD102),
    (r"\bRTX 5090\b", 1792, (209.5, 209.5, 419, 104.8), _GB202),
    (r"\bMI355X\b", 8000, (2516.6, 2516.6, 5033.2, 157.3), "AMD Instinct MI355X datasheet"),
    (r"\bMI350X\b", 8000, (2306.9, 2306.9, 4613.7, 144.2), "AMD Instinct MI350X datasheet"),
    (r"\bMI325X\b", 6000, (1307.4, 1307.4, 2614.9, 163.4), "AMD Instinct MI325X datasheet"),
    (r"\bMI300X\b", 5300, (1307.4, 1307.4, 2614.9, 163.4), "AMD Instinct MI300X datasheet"),
    (r"\bMI300A\b", 5300, (980.6, 980.6, 1961.2, 122.6), "AMD Instinct MI300A datasheet"),
    (r"\bMI250X\b", 1638.4, (191.5, 191.5, None, 23.95), f"{_MI200} (one of two dies)"),
    (r"\bMI250\b", 1638.4, (181.05, 181.05, None, 22.65), f"{_MI200} (one of two dies)"),
    (r"\bMI210\b", 1638.4, (181, 181, None, 22.6), "AMD Instinct MI210 datasheet"),
    (r"\bMI100\b", 1228.8, (92.3, 184.6, None, 23.1), "AMD Instinct MI100 datasheet"),
)
_LAPTOP = re.compile(r"laptop|mobile|max-q", re.IGNORECASE)
_WRITE = 'write it as "4682GB/s" or "5.3TB/s,1307TFLOP/s"'
_MAX_SHOWN = 60
_WORD = re.compile(
    r"(?:(?P<dtype>[a-z]+[0-9]+)\s*=\s*)?(?P<number>[0-9]+(?:\.[0-9]*)?(?:e\+?[0-9]{1,2})?)\s*"
    r"(?P<prefix>[kMGTPE]i?|[kmgtpe]i?)?(?P<unit>B|b|FLOPS?|flops?)\s*(?P<time>/s|ps)?"
)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_LEAST, _MOST = 1e6, 1e21


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """A device's peaks and the document that states them.

    `flops_per_s` holds the dense peak by dtype: "bf16", "fp16" and "fp8" on the matrix units,
    "fp32" on the vector units; a dtype without a certain figure is missing. Figures that a
    datasheet gives only with structured sparsity are halved.
    """

    bytes_per_s: float
    source: str
    flops_per_s: Mapping[str, float]


def datasheet_peak(device_name: str) -> DatasheetPeak | None:
    """The vendor's figures for a device as the driver names it, None if none is certain.

    Laptop parts share their names with desktop parts but not their memory, so they have none.
    """
    if _LAPTOP.search(device_name):
        return None
    for pattern, gigabytes_per_s, teraflops, source in _PEAKS:
        if re.search(pattern, device_name, re.IGNORECASE):
            by_dtype = zip(DTYPES, teraflops, strict=False)
            flops_per_s = {dtype: value * 1e12 for dtype, value in by_dtype if value is not None}
            return DatasheetPeak(gigabytes_per_s * 1e9, source, flops_per_s)
    return None


def datasheet_peak_bytes_per_s(device_name: str) -> float | None:
    """Peak memory bandwidth in bytes/s by device name, or None."""
    peak = datasheet_peak(device_name)
    return peak.bytes_per_s if peak else None


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


def parse_peak(text: str) -> DatasheetPeak:
    """The peak that `--peak` gives: a bandwidth, and rates of arithmetic if there are any.

    "4682GB/s"; "5.3TB/s,1307TFLOP/s", a rate for every dtype; "5.3TB/s,bf16=1307TFLOP/s,
    fp8=2615TFLOP/s". GiB/s and TiB/s count in powers of 1024.

    Raises:
        InputError: another text, no bandwidth, or a figure that cannot be.
    """
    bytes_per_s: float | None = None
    flops_per_s: dict[str, float] = {}
    for word in text.split(","):
        dtype, value, is_bandwidth = _figure(word, text)
        if is_bandwidth:
            if bytes_per_s is not None:
                raise _error(text, "two bandwidths")
            bytes_per_s = value
        elif dtype is not None:
            flops_per_s[dtype] = value
        else:
            flops_per_s = dict.fromkeys(DTYPES, value) | flops_per_s
    if bytes_per_s is None:
        raise _error(text, "no bandwidth")
    return DatasheetPeak(bytes_per_s, GIVEN_PEAK, flops_per_s)


def _figure(word: str, text: str) -> tuple[str | None, float, bool]:
    """Dtype, value in units a second, and whether the unit is bytes."""
    matched = _WORD.fullmatch(word.strip())
    if matched is None:
        raise _error(text, f"{plain_line(word.strip())[:_MAX_SHOWN]!r} is no figure with a unit")
    prefix, unit = matched["prefix"] or "", matched["unit"]
    is_bandwidth = unit in "Bb"
    if unit == "b" and not (prefix + unit).islower():
        raise _error(text, f"{prefix}{unit} are bits; give bytes ({prefix}B/s)")
    if matched["time"] is None and not unit.lower().endswith("s"):
        raise _error(text, f"{prefix}{unit} is no rate")
    dtype = matched["dtype"]
    if dtype is not None and (is_bandwidth or dtype not in DTYPES):
        raise _error(text, f"{dtype} is none of {', '.join(DTYPES)} with a rate of arithmetic")
    scale = (
        1024.0 ** " kmgtpe".index(prefix[0].lower())
        if prefix.endswith("i")
        else (_PREFIXES[prefix.lower()])
    )
    value = float(matched["number"]) * scale
    if not math.isfinite(value) or not _LEAST <= value <= _MOST:
        raise _error(text, f"{value:g} a second cannot be")
    return dtype, value, is_bandwidth


def _error(text: str, problem: str) -> InputError:
    return InputError(f"peak {plain_line(text)[:_MAX_SHOWN]!r}: {problem}; {_WRITE}")
