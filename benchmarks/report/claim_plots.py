"""Plots of claims: which claims have one, and what it shows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.claims.prefill.source import STREAM
from benchmarks.claims.report import EntrantFigures, Race
from benchmarks.claims.rms_norm.rows import COPY, copy_times
from benchmarks.report.claims import Recorded, Section, gpu_word
from benchmarks.report.drawing import Bar, Series, bars_file, lines_file
from decodescope.analyzer.roofline.peaks import datasheet_peak
from decodescope.analyzer.text.formatting import bytes_size, rate

# Claims of the same work at several sizes: the size in a race's name, and what it counts.
_SIZES = {
    "tk-gemm": (r"M = ([\d,]+)", "M"),
    "int8-gemm": (r"([\d,]+) tokens?\b", "tokens"),
    "qwen-block": (r"block after ([\d,]+) tokens", "tokens in the KV cache"),
}
# The roofline's lines begin and end this far from its points.
_BEYOND = 3.0
_BOUND = "bytes or FLOPs ÷ peak"


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
            for draw in (_rooflines, _ladders, _by_size, _decoding)
            for plot in draw(gpu, measured)
        ]
        for section in sections
        for gpu, measured in section.measured.items()
    }


def _rooflines(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """FLOP/s by arithmetic intensity, of what each entrant moves, under this GPU's peaks."""
    if not any(one.claim.name.startswith("prefill-") for one in measured):
        return []
    points: dict[str, list[tuple[float, float, str]]] = {}
    for one in measured:
        for race in (race for race in one.claim.races if race.of == "calls"):
            for entrant in _timed((race,)):
                if entrant.name != STREAM and (point := _on_the_roofline(entrant)) is not None:
                    name = "ours" if entrant.ours else entrant.name
                    label = one.claim.name.removeprefix("prefill-")
                    if label in _SIZES:
                        label += ", " + race.size.partition(", ")[0]
                    points.setdefault(name, []).append((*point, label))
    if not points:
        return []
    series = [
        Series(
            name,
            tuple((x, y) for x, y, _ in found),
            joined=False,
            labels=tuple(label for _, _, label in found),
        )
        for name, found in sorted(points.items(), key=lambda item: item[0] != "ours")
    ]
    places = [x for found in points.values() for x, _, _ in found]
    peak = measured[0].report.measured_peak_bytes_per_s
    lines = _peaks(gpu, peak, min(places) / _BEYOND, max(places) * _BEYOND)
    title = f"Roofline of the kernels on {gpu_word(gpu)}: each at what its launches move"
    svg = lines_file(title, "FLOPs ÷ bytes", "TFLOP/s", (*series, *lines))
    return [Plot(_file("roofline", gpu), title, svg)]


def _on_the_roofline(entrant: EntrantFigures) -> tuple[float, float] | None:
    """FLOPs ÷ bytes, and TFLOP/s; None if it is not known what was moved or computed."""
    moved = entrant.traffic_bytes or entrant.bytes_moved
    if not entrant.flops or not moved or entrant.device_ns is None:
        return None
    return entrant.flops / moved, entrant.flops / entrant.device_ns.median / 1e3


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
    """Bytes a second of each rung of RMSNorm, against the device copy of the same rounds. Races
    without that copy only chose between candidates."""
    races = [
        race
        for one in measured
        if one.claim.name == "rmsnorm"
        for race in one.claim.races
        if any(entrant.name == COPY for entrant in _timed((race,)))
    ]
    bars = [_bytes_bar(race, entrant) for race in races for entrant in _timed((race,))]
    if not bars:
        return []
    title = f"RMSNorm on {gpu_word(gpu)}; dashed: the device copy of the same run"
    svg = bars_file(title, "GB/s", bars)
    return [Plot(_file("rmsnorm", gpu), title, svg)]


def _bytes_bar(race: Race, entrant: EntrantFigures) -> Bar:
    """One rung, or the copy, which is as fast as it ever is, as in the rows."""
    copied = copy_times(race)
    moved, times = entrant.bytes_moved or 0, copied if entrant.name == COPY else entrant.device_ns
    assert times is not None
    assert copied is not None
    value, low, high = (moved / ns for ns in (times.median, times.max, times.min))
    limit = (race.entrant(COPY).bytes_moved or 0) / copied.median
    text = f"{bytes_size(value * 1e9)}/s, {value / limit * 100:.1f} % of the copy"
    return Bar(race.size, entrant.name, value, low, high, limit, text)


def _by_size(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """The time of every entrant by the size of the work."""
    plots = []
    for one in (one for one in measured if one.claim.name in _SIZES):
        pattern, axis = _SIZES[one.claim.name]
        lines: dict[str, dict[float, float]] = {}
        for race in one.claim.races:
            if found := re.match(pattern, race.size):
                size = float(found[1].replace(",", ""))
                for entrant in _timed((race,)):
                    assert entrant.device_ns is not None
                    lines.setdefault(entrant.name, {})[size] = entrant.device_ns.median / 1e3
                    if entrant.ours and entrant.bound_ns is not None:
                        lines.setdefault(_BOUND, {})[size] = entrant.bound_ns / 1e3
        if lines:
            title = f"{one.claim.name} on {gpu_word(gpu)}: time of a call by {axis}"
            series = [
                Series(name, tuple(points.items()), limit="measured" if name == _BOUND else None)
                for name, points in sorted(lines.items(), key=lambda item: item[0] == _BOUND)
            ]
            marks = sorted({size for points in lines.values() for size in points})
            svg = lines_file(title, axis, "µs, in a CUDA graph", series, marks)
            plots.append(Plot(_file(one.claim.name, gpu), title, svg))
    return plots


def _decoding(gpu: str, measured: Sequence[Recorded]) -> list[Plot]:
    """tokens/s of every variant and peer, with what the bytes of its step allow: of a claim with
    several models the one that reads the most, because the others need another scale."""
    plots = []
    for one in measured:
        races = [race for race in one.claim.races if race.of == "steps" and _timed((race,))]
        if races:
            race = max(races, key=_most_bytes)
            bars = [_rate_bar(race, entrant) for entrant in _timed((race,))]
            title = f"tokens/s on {gpu_word(gpu)}; dashed: the bytes of a step at the read peak"
            file = _file(one.claim.name, gpu)
            plots.append(Plot(file, title, bars_file(title, "tokens/s", bars)))
    return plots


def _most_bytes(race: Race) -> int:
    return max(entrant.bytes_moved or 0 for entrant in race.entrants)


def _rate_bar(race: Race, entrant: EntrantFigures) -> Bar:
    rates = entrant.per_s
    assert rates is not None
    limit = None if entrant.bound_ns is None else 1e9 / entrant.bound_ns
    text = rate(rates.median) if limit is None else f"{rate(rates.median)} of {rate(limit)}"
    return Bar(race.size, entrant.name, rates.median, rates.min, rates.max, limit, text)


def _file(name: str, gpu: str) -> str:
    return f"{name}-{gpu_word(gpu).lower().replace(' ', '-')}.svg"


def _timed(races: Sequence[Race]) -> list[EntrantFigures]:
    """The entrants that were right and were timed."""
    return [
        one
        for race in races
        for one in race.entrants
        if one.error is None
        and (one.launched_ns if race.of == "steps" else one.device_ns) is not None
    ]
