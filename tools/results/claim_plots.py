"""Plots of claims: which claims have one, and what it shows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from decodescope.analyzer.formatting import bytes_size, rate
from decodescope.analyzer.roofline.peaks import datasheet_peak
from decodescope.variants.claims.report import EntrantFigures, Race
from tools.results.claims import Recorded, Section, gpu_word
from tools.results.drawing import Bar, Series, bars_file, lines_file

# Entrants that move the same bytes without computing anything.
_COPIES = ("device copy", "same_bytes")
# The roofline's lines begin and end this far from its points.
_BEYOND = 3.0
_BOUND = "bytes or FLOPs of FP8 ÷ peak"


@dataclass(frozen=True, slots=True)
class Plot:
    """One SVG file, with what it shows in words."""

    file: str
    words: str
    svg: str


def claim_plots(sections: Sequence[Section]) -> dict[tuple[str, str], list[Plot]]:
    """The plots of each source (its URL) on each GPU."""
    return {
        (section.source.url, gpu): [
            plot
            for draw in (_rooflines, _ladders, _products, _decoding)
            for plot in draw(gpu, measured)
        ]
        for section in sections
        for gpu, measured in section.measured.items()
    }


def _rooflines(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """FLOP/s by arithmetic intensity, of what each entrant moves, under this GPU's peaks."""
    chosen = [one for one in measured if one.claim.name.startswith("prefill")]
    points: dict[str, list[tuple[float, float]]] = {}
    labels: dict[str, list[str]] = {}
    for one in chosen:
        for entrant in _timed(one.claim.races):
            if entrant.flops and entrant.bytes_moved and entrant.device_ns:
                moved = entrant.traffic_bytes or entrant.bytes_moved
                per_s = entrant.flops / entrant.device_ns.median * 1e9
                name = "ours" if entrant.ours else entrant.name
                points.setdefault(name, []).append((entrant.flops / moved, per_s / 1e12))
                labels.setdefault(name, []).append(one.claim.name.partition("-")[2])
    if not points:
        return []
    series = [
        Series(name, tuple(found), joined=False, labels=tuple(labels[name]))
        for name, found in sorted(points.items())
    ]
    intensities = [x for found in points.values() for x, _ in found]
    low, high = min(intensities) / _BEYOND, max(intensities) * _BEYOND
    title = f"Roofline of the kernels on {gpu_word(gpu)}: each at what its launches move"
    lines = _peaks(gpu, chosen[0].report.measured_peak_bytes_per_s, low, high)
    svg = lines_file(title, "FLOPs ÷ bytes", "TFLOP/s", (*series, *lines))
    return [Plot(f"roofline-{gpu_word(gpu).lower()}.svg", title, svg)]


def _peaks(gpu: str, read_peak: float | None, low: float, high: float) -> list[Series]:
    """The measured read peak and the datasheet's lines, from one intensity to another."""
    datasheet = datasheet_peak(gpu)
    if datasheet is None:
        return []
    tops = datasheet.flops_per_s
    top = tops.get("fp16", max(tops.values(), default=0.0))
    lines = []
    peaks: tuple[tuple[Literal["measured", "stated"], str, float | None], ...] = (
        ("measured", "read peak", read_peak),
        ("stated", "datasheet", datasheet.bytes_per_s),
    )
    for kind, name, per_s in peaks:
        if per_s is not None and top:
            ridge = top / per_s
            places = [low, *([ridge] if low < ridge < high else []), high]
            line = tuple((x, min(x * per_s, top) / 1e12) for x in places)
            words = f"{name} {bytes_size(per_s)}/s, fp16 {top / 1e12:,.0f} TFLOP/s"
            lines.append(Series(words, line, limit=kind))
    return lines


def _ladders(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """Bytes a second of each rung of RMSNorm, against the copy of the same run."""
    plots = []
    for one in (one for one in measured if one.claim.name == "rmsnorm"):
        bars = []
        for race in one.claim.races:
            copies = [
                entrant.bytes_moved / entrant.device_ns.median
                for entrant in _timed((race,), copies=True)
                if entrant.name in _COPIES and entrant.bytes_moved and entrant.device_ns
            ]
            bars += [
                _bytes_bar(race, entrant, max(copies, default=None))
                for entrant in _timed((race,), copies=True)
            ]
        if bars:
            title = f"RMSNorm on {gpu_word(gpu)}; dashed: the device copy of the same run"
            svg = bars_file(title, "GB/s", bars)
            plots.append(Plot(f"rmsnorm-{gpu_word(gpu).lower()}.svg", title, svg))
    return plots


def _bytes_bar(race: Race, entrant: EntrantFigures, limit: float | None) -> Bar:
    assert entrant.device_ns is not None
    moved, times = entrant.bytes_moved or 0, entrant.device_ns
    value, low, high = (moved / ns for ns in (times.median, times.max, times.min))
    text = f"{bytes_size(value * 1e9)}/s"
    if limit is not None:
        text += f", {value / limit * 100:.1f} % of the copy"
    return Bar(race.size, entrant.name, value, low, high, limit, text)


def _products(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """The time of a GEMM by its number of rows M."""
    plots = []
    for one in (one for one in measured if one.claim.name == "tk-gemm"):
        lines: dict[str, list[tuple[float, float]]] = {}
        for race in one.claim.races:
            if found := re.match(r"M = ([\d,]+)", race.size):
                m = float(found[1].replace(",", ""))
                for entrant in _timed((race,)):
                    if entrant.device_ns is not None:
                        point = (m, entrant.device_ns.median / 1e3)
                        lines.setdefault(entrant.name, []).append(point)
                        if entrant.ours and entrant.bound_ns is not None:
                            bound = (m, entrant.bound_ns / 1e3)
                            lines.setdefault(_BOUND, []).append(bound)
        if lines:
            title = f"TK-GEMM's product by M on {gpu_word(gpu)}"
            series = [
                Series(name, tuple(sorted(points)), limit="measured" if name == _BOUND else None)
                for name, points in lines.items()
            ]
            marks = sorted({x for points in lines.values() for x, _ in points})
            svg = lines_file(title, "M", "µs of a call in a CUDA graph", series, marks)
            plots.append(Plot(f"tk-gemm-{gpu_word(gpu).lower()}.svg", title, svg))
    return plots


def _decoding(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """tokens/s of every variant and peer, with what the bytes of its step allow."""
    plots = []
    for one in measured:
        races = [race for race in one.claim.races if race.of == "steps"]
        bars = [_rate_bar(race, entrant) for race in races for entrant in _timed((race,))]
        if bars:
            title = f"tokens/s on {gpu_word(gpu)}; dashed: the bytes of a step at the read peak"
            file = f"{one.claim.name}-{gpu_word(gpu).lower()}.svg"
            plots.append(Plot(file, title, bars_file(title, "tokens/s", bars)))
    return plots


def _rate_bar(race: Race, entrant: EntrantFigures) -> Bar:
    assert entrant.launched_ns is not None
    times = entrant.launched_ns
    value, low, high = (1e9 / ns for ns in (times.median, times.max, times.min))
    limit = None if entrant.bound_ns is None else 1e9 / entrant.bound_ns
    text = rate(value) if limit is None else f"{rate(value)} of {rate(limit)}"
    return Bar(race.size, entrant.name, value, low, high, limit, text)


def _timed(races: Sequence[Race], copies: bool = False) -> list[EntrantFigures]:
    """The entrants that were right and were timed."""
    return [
        one
        for race in races
        for one in race.entrants
        if one.error is None
        and (one.launched_ns if race.of == "steps" else one.device_ns) is not None
        and (copies or one.name not in _COPIES)
    ]
