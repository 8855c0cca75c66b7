"""The peak of a device as a user gives it, for a trace that does not name its device."""

import math
import re

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.roofline.peaks import DTYPES, GIVEN_PEAK, DatasheetPeak
from decodescope.analyzer.text.plain import plain_line

_WRITE = 'write it as "4682GB/s" or "5.3TB/s,1307TFLOP/s"'
_MAX_SHOWN = 60
_WORD = re.compile(
    r"(?:(?P<dtype>[a-z]+[0-9]+)\s*=\s*)?(?P<number>[0-9]+(?:\.[0-9]*)?(?:e\+?[0-9]{1,2})?)\s*"
    r"(?P<prefix>[kMGTPE]i?|[kmgtpe]i?)?(?P<unit>B|b|FLOPS?|flops?)\s*(?P<time>/s|ps)?"
)
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_LEAST, _MOST = 1e6, 1e21


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
