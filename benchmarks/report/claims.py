"""The records of `claims` as sections: one for each source, with a table for each GPU."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.claims.catalog import CLAIMS
from benchmarks.claims.report import ClaimResult, ClaimsReport, EntrantFigures, Race, Row, Source
from benchmarks.claims.table import value_text
from benchmarks.report.records import RESULTS
from decodescope.analyzer.text.formatting import bytes_size, duration, percent

FOLDER = RESULTS / "claims"
_OF_A_GPU = ("tokens_per_s", "ns", "bytes_per_s")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One claim as one file has it, measured on one kind of GPU."""

    file: str
    report: ClaimsReport
    claim: ClaimResult

    @property
    def gpu(self) -> str:
        return str(self.report.environment["gpu"])


@dataclass(frozen=True, slots=True)
class Section:
    """One source, and its claims by the GPU that they were measured on."""

    source: Source
    measured: dict[str, tuple[Recorded, ...]]


def read_reports(folder: Path = FOLDER) -> dict[str, ClaimsReport]:
    """Every report of `claims -o` in `folder`, by the name of its file without `.json`."""
    return {
        path.stem: msgspec.json.decode(path.read_bytes(), type=ClaimsReport)
        for path in sorted(folder.glob("*.json"))
    }


def sections(reports: Mapping[str, ClaimsReport]) -> list[Section]:
    """The sources in the order of `claims`, each with its claims in that order.

    Raises:
        SystemExit: two files have the same claim for the same kind of GPU.
    """
    recorded = [
        Recorded(file, report, claim) for file, report in reports.items() for claim in report.claims
    ]
    _require_one_file(recorded)
    place = {claim.name: number for number, claim in enumerate(CLAIMS)}
    recorded.sort(key=lambda one: (place.get(one.claim.name, len(place)), _newest_first(one.gpu)))
    found: dict[str, Section] = {}
    for one in recorded:
        section = found.setdefault(one.claim.source.url, Section(one.claim.source, {}))
        section.measured[one.gpu] = (*section.measured.get(one.gpu, ()), one)
    return list(found.values())


def gpu_word(gpu: str) -> str:
    """The model of a GPU, such as "H200" of "NVIDIA H200"."""
    return gpu.removeprefix("NVIDIA ")


def gpus(found: Sequence[Section]) -> list[str]:
    """Every GPU with a claim, the newest first."""
    return sorted({gpu for section in found for gpu in section.measured}, key=_newest_first)


def reached_by_gpu(found: Sequence[Section]) -> dict[str, tuple[int, int]]:
    """What `reached` counts, over all sources, by GPU."""
    return {
        gpu: reached([one for section in found for one in section.measured.get(gpu, ())])
        for gpu in gpus(found)
    }


def origin_lines(measured: Sequence[Recorded]) -> Iterator[str]:
    """Each file of these claims: the peaks it was measured against, clocks, and noise."""
    for file in dict.fromkeys(one.file for one in measured):
        of_file = [one for one in measured if one.file == file]
        report = of_file[0].report
        parts = [
            f"`claims/{file}.json`: read peak {bytes_size(report.measured_peak_bytes_per_s)}/s of "
            f"{bytes_size(report.datasheet_peak_bytes_per_s)}/s, shortest launch "
            f"{duration(report.launch_floor_ns)}",
            *_clocks([one.claim for one in of_file]),
            *_noise([one.claim for one in of_file]),
        ]
        yield "; ".join(parts) + "."


def race_lines(measured: Sequence[Recorded]) -> Iterator[str]:
    """Each race of these claims: the median time of every entrant, the fastest first, those of ours
    in bold; the error of an entrant that failed. A race among the forms of one entrant of another
    race is in the record alone."""
    for one in measured:
        sizes = [f"{race.size}: " for race in one.claim.races]
        for race in one.claim.races:
            if race.size.startswith(tuple(sizes)):
                continue
            entrants = sorted(race.entrants, key=lambda entrant: _entrant_ns(race, entrant))
            times = ", ".join(_entrant_text(race, entrant) for entrant in entrants)
            yield f"{one.claim.name}, {race.size}: {times}"


def reached(measured: Sequence[Recorded]) -> tuple[int, int]:
    """How many published figures are reached, of those that count."""
    rows = [row for one in measured for row in counted(one)]
    return sum(map(is_reached, rows)), len(rows)


def is_reached(row: Row) -> bool:
    """Whether a row that counts is reached; one that failed is not."""
    return row.reached is True


def counted(one: Recorded) -> list[Row]:
    """The rows of a claim that compare or could not be measured. Times and rates compare only on a
    GPU that the source measured; what a source improves on does not count."""
    return [
        row
        for row in one.claim.rows
        if row.published is not None
        and not row.baseline
        and (row.error is not None or row.reached is not None)
        and (row.unit not in _OF_A_GPU or one.claim.source.gpu_like(one.gpu) is not None)
    ]


def _require_one_file(recorded: Sequence[Recorded]) -> None:
    files: dict[tuple[str, str], str] = {}
    for one in recorded:
        key = (one.claim.name, one.gpu)
        if (other := files.setdefault(key, one.file)) != one.file:
            raise SystemExit(
                f"{FOLDER}: {one.claim.name} on {one.gpu} is in {other}.json and {one.file}.json; "
                "keep the claim in one of them"
            )


def _newest_first(gpu: str) -> tuple[int, str]:
    digits = re.search(r"\d+", gpu)
    return (-int(digits.group()) if digits else 0, gpu)


def _clocks(claims: Sequence[ClaimResult]) -> Iterator[str]:
    lows = [one.clocks.sm_mhz_min for one in claims if one.clocks.sm_mhz_min is not None]
    highs = [one.clocks.sm_mhz_max for one in claims if one.clocks.sm_mhz_max is not None]
    power = [one.clocks.power_w_max for one in claims if one.clocks.power_w_max is not None]
    if lows and highs:
        yield f"SM clock {min(lows):,} to {max(highs):,} MHz"
    if power:
        yield f"up to {max(power):.0f} W"
    if throttled := sorted({why for one in claims for why in one.clocks.throttled_by}):
        yield f"throttled: {', '.join(throttled)}"


def _noise(claims: Sequence[ClaimResult]) -> Iterator[str]:
    """The range of the rounds ÷ their median, of the typical and of the worst time."""
    times = [
        spread
        for claim in claims
        for race in claim.races
        for one in race.entrants
        if (spread := one.launched_ns if race.of == "steps" else one.device_ns) is not None
    ]
    ranges = [(spread.max - spread.min) / spread.median for spread in times]
    if ranges:
        yield f"noise: rounds within {percent(median(ranges))} % (worst {percent(max(ranges))} %)"


def _entrant_ns(race: Race, entrant: EntrantFigures) -> float:
    """The median time of a decode step, or of a call on the device; infinite for an entrant that
    failed."""
    spread = entrant.launched_ns if race.of == "steps" else entrant.device_ns
    return inf if spread is None else spread.median


def _entrant_text(race: Race, entrant: EntrantFigures) -> str:
    name = f"**{entrant.name}**" if entrant.ours else entrant.name
    if entrant.error is not None:
        return f"{name} ({entrant.error})"
    text = f"{name} {value_text(_entrant_ns(race, entrant), 'ns')}"
    if race.of == "steps" and entrant.device_ns is not None:
        text += f" (GPU {value_text(entrant.device_ns.median, 'ns')})"
    return text
