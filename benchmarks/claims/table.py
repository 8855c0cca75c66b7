"""The result of `claims` for a terminal."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchmarks.claims.report import (
    ClaimResult,
    ClaimsReport,
    Clocks,
    EntrantFigures,
    Race,
    Row,
    Unit,
)
from decodescope.analyzer.text.formatting import (
    UNKNOWN,
    bytes_size,
    duration,
    microseconds,
    number,
    percent,
    rate,
    significant,
)
from decodescope.variants.tuning.report import RoundSpread

_MACHINE = ("gpu", "driver", "cuda", "torch", "triton", "transformers", "decodescope", "commit")


def claims_table(report: ClaimsReport) -> RenderableType:
    """Each claim: where it comes from, its rows beside the published figures, and its races."""
    shown = [part for claim in report.claims for part in _claim(claim)]
    machine = ", ".join(f"{k} {report.environment[k]}" for k in _MACHINE if report.environment[k])
    peak = (
        f"read peak {bytes_size(report.measured_peak_bytes_per_s)}/s, "
        f"datasheet {bytes_size(report.datasheet_peak_bytes_per_s)}/s, "
        f"shortest launch {duration(report.launch_floor_ns)}"
    )
    return Group(*shown, Text(peak, style="dim"), Text(machine, style="dim"))


def value_text(value: float | None, unit: Unit) -> str:
    """A figure in its unit."""
    if value is None:
        return UNKNOWN
    match unit:
        case "ratio":
            return f"x{significant(value)}"
        case "share":
            return f"{percent(value)} %"
        case "tokens_per_s":
            return f"{rate(value)} tok/s"
        case "ns":
            return duration(value)
        case "bytes_per_s":
            return f"{bytes_size(value)}/s"
        case "bytes":
            return bytes_size(value)
        case "launches":
            return f"{value:g}"
        case "cosine":
            return f"{value:.7f}"


def spread_text(spread: RoundSpread | None, unit: Unit) -> str:
    """The median with its range; the range alone says nothing where both ends look the same."""
    if spread is None:
        return UNKNOWN
    middle, low, high = (
        value_text(value, unit) for value in (spread.median, spread.min, spread.max)
    )
    return middle if low == high else f"{middle} ({low} to {high})"


def row_name(row: Row) -> str:
    """What a row's figures are of."""
    return f"{row.what} (baseline)" if row.baseline else row.what


def _claim(claim: ClaimResult) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(f"{claim.name}: {claim.title}", style="bold"),
        Text(f"{claim.source.title}, {claim.source.gpu or 'GPU unknown'}: {claim.source.url}"),
        Text(claim.comparable, style="dim"),
    ]
    if claim.error is not None:
        return [*parts, Text(f"not measured: {claim.error}", style="bold red"), Text()]
    if claim.rows:
        parts.append(_rows(claim.rows))
    parts += [_race(race) for race in claim.races]
    parts += [Text(note, style="dim") for note in claim.notes]
    return [*parts, Text(_clocks(claim.clocks, claim.seconds), style="dim"), Text()]


def _rows(rows: tuple[Row, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("figure", overflow="fold")
    for name in ("theirs", "here", "limit here", "of their limit", "of ours"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("because", overflow="fold", ratio=1)
    for row in rows:
        table.add_row(
            row_name(row),
            value_text(row.published, row.unit),
            spread_text(row.measured, row.unit),
            value_text(row.limit, row.unit),
            value_text(row.published_share, "share"),
            value_text(row.measured_share, "share"),
            row.error or row.explanation,
            style="bold red" if row.error else "",
        )
    return table


def _race_title(race: Race) -> str:
    rounds = [len(one.launched_ns.rounds) for one in race.entrants if one.launched_ns is not None]
    return f"{race.size}: medians of {max(rounds)} rounds" if rounds else race.size


def _race(race: Race) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, title=_race_title(race), title_justify="left"
    )
    table.add_column("measured", overflow="fold")
    for name in (*_TIMES[race.of], "of the bound", "launches", "error"):
        table.add_column(name, justify="right", overflow="fold")
    table.add_column("", overflow="fold", ratio=1)
    for one in race.entrants:
        cells = _entrant_cells(one, race.of)
        table.add_row(one.name, *cells, one.error or one.note or one.what)
    return table


_TIMES = {
    "calls": ("in a graph µs", "launched µs", "rate"),
    "steps": ("GPU works µs", "step µs", "tokens/s"),
}


def _entrant_cells(one: EntrantFigures, of: str) -> list[str]:
    device, launched = one.device_ns, one.launched_ns
    speed = UNKNOWN
    if of == "steps" and one.per_s is not None:
        speed = rate(one.per_s.median)
    elif of == "calls" and device is not None and one.bytes_moved:
        speed = value_text(one.bytes_moved / device.median * 1e9, "bytes_per_s")
    error = UNKNOWN if one.relative_error is None else f"{one.relative_error:.1e}"
    return [
        microseconds(None if device is None else device.median),
        microseconds(None if launched is None else launched.median),
        speed,
        value_text(one.share_of_bound, "share"),
        number(one.launches),
        error,
    ]


def _clocks(clocks: Clocks, seconds: float) -> str:
    text = f"{seconds:.0f} s"
    if clocks.sm_mhz_min is not None:
        text += f", SM clock {clocks.sm_mhz_min} to {clocks.sm_mhz_max} MHz"
    if clocks.power_w_max is not None:
        text += f", up to {clocks.power_w_max:.0f} W"
    if clocks.throttled_by:
        text += f", throttled: {', '.join(clocks.throttled_by)}"
    return text
