"""Peaks of devices, from datasheets or as a user gives them, and the share that a step reached.

MBU = bytes a step must read / step time / peak bandwidth. Datasheet peaks are the vendors' figures
for memory bandwidth and dense arithmetic.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.step_report import Bandwidth
from decodescope.analyzer.text.plain import plain_line

# The source of a peak that the user gave.
GIVEN_PEAK = "--peak"
DTYPES = ("bf16", "fp16", "fp8", "fp32")
_LAPTOP = re.compile(r"laptop|mobile|max-q", re.IGNORECASE)
_WRITE = 'write it as "4682GB/s" or "5.3TB/s,1307TFLOP/s"'
_MAX_SHOWN = 60
_WORD = re.compile(
    r"(?:(?P<dtype>[a-z]+[0-9]+)\s*=\s*)?(?P<number>[0-9]+(?:\.[0-9]*)?(?:e\+?[0-9]{1,2})?)\s*"
    r"(?P<prefix>[kMGTPE]i?|[kmgtpe]i?)?(?P<unit>B|b|FLOPS?|flops?)\s*(?P<time>/s|ps)?"
)
_LEAST, _MOST = 1e6, 1e21


@dataclass(frozen=True, slots=True)
class DatasheetPeak:
    """A device's peaks and the document that states them.

    `flops_per_s` holds the dense peak by dtype: "bf16", "fp16", "fp8" and "fp4" on the matrix
    units, "fp32" on the vector units; a dtype without a certain figure is missing. Figures that a
    datasheet gives only with structured sparsity are halved. `link_bytes_per_s` is what a device
    sends to others by NVLink or Infinity Fabric, half of what datasheets give for both directions.
    """

    bytes_per_s: float
    source: str
    flops_per_s: Mapping[str, float]
    link_bytes_per_s: float | None = None


@cache
def _datasheet_peaks() -> dict[str, DatasheetPeak]:
    """The figures of `device_peaks.json` by the pattern of a device's name."""
    data = files(__package__).joinpath("device_peaks.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, DatasheetPeak])


def datasheet_peak(device_name: str) -> DatasheetPeak | None:
    """The vendor's figures for a device as the driver names it, None if none is certain, as for
    laptop parts: these share their names with desktop parts but not their memory. The driver shows
    each die of an MI250 as a device of its own."""
    if _LAPTOP.search(device_name):
        return None
    for pattern, peak in _datasheet_peaks().items():
        if re.search(pattern, device_name, re.IGNORECASE):
            return peak
    return None


def datasheet_peak_bytes_per_s(device_name: str) -> float | None:
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
    """The peak that `--peak` gives: "4682GB/s"; "5.3TB/s,1307TFLOP/s", a rate for every dtype;
    "5.3TB/s,bf16=1307TFLOP/s,fp8=2615TFLOP/s". GiB/s and TiB/s count in powers of 1024.

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
    thousand = 1024.0 if prefix.endswith("i") else 1000.0
    value = float(matched["number"]) * thousand ** " kmgtpe".index(prefix[:1].lower())
    if not math.isfinite(value) or not _LEAST <= value <= _MOST:
        raise _error(text, f"{value:g} a second cannot be")
    return dtype, value, is_bandwidth


def _error(text: str, problem: str) -> InputError:
    return InputError(f"peak {plain_line(text)[:_MAX_SHOWN]!r}: {problem}; {_WRITE}")
