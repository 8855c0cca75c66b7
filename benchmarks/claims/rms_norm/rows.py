"""Rows of the claim `rmsnorm`: each published kernel beside its rung, and what a rung moves."""

from collections.abc import Iterator
from itertools import pairwise

from msgspec.structs import replace

from benchmarks.claims.report import EntrantFigures, Race, Row, Source
from benchmarks.claims.rows import share_of_peak
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.text.formatting import bytes_size, duration, percent, ratio_text
from decodescope.variants.tuning.report import RoundSpread

SOURCE = Source(
    "Making RMSNorm really fast (S. Veitner, 2025), code simveit/effective_rms_norm",
    "https://veitner.bearblog.dev/making-rmsnorm-really-fast",
    "H100",
    "Veitner",
)
# The source's code: GB/s by kernel, of x and out without the weight.
_NAIVE, _SHARED, _WARP, _FLOAT4 = 3015.30e9, 3044.99e9, 3043.23e9, 3062.86e9
_THEIR_PEAK = 3350e9

LOOPED, SINGLE, VECTORISED, PERSISTENT = "looped", "single pass", "vectorised", "persistent"
COPY = "device copy"
# What of theirs stands beside which rung. All of Triton's sums over threads use warp shuffles.
_RUNGS: tuple[tuple[str, str, float | None], ...] = (
    ("naive: reads x twice", LOOPED, _NAIVE),
    ("shared memory keeps the row; here registers", SINGLE, _SHARED),
    ("warp shuffles add; here too", SINGLE, _WARP),
    ("float4: 128-bit accesses", VECTORISED, _FLOAT4),
    ("no counterpart", PERSISTENT, None),
)

_BEFORE = {rung: earlier for earlier, rung in pairwise((LOOPED, SINGLE, VECTORISED, PERSISTENT))}

NOTES = (
    "The source's 91.4, 92.3, 92.2 and 92.8 % are of 3,300 GB/s, a constant in its code: here its "
    "GB/s are divided by the 3,350 GB/s of the H100's datasheet. It names no GPU: that one follows "
    "from its build for sm_90a and from the constant.",
    "Bytes are counted as there: x and out once, without the weight. The source has no copy to "
    "compare with, and means of 10,000 launches.",
    "Accesses have 128 bits in every rung: Triton sees that rows and addresses are multiples of 16 "
    "bytes. The vectorised rung has no masks, rows of a compile-time length, and candidates with "
    "several rows a program and with cache hints.",
)


def ladder_rows(race: Race, datasheet_bytes_per_s: float | None) -> Iterator[Row]:
    """Each published kernel beside its rung: shares of the datasheets' bandwidths. The limit is the
    device copy's share, and `measured_share` the rate as a part of the copy's."""
    copy_ns = copy_times(race)
    for theirs, rung, published in _RUNGS:
        one = race.entrant(rung)
        row = share_of_peak(
            f"{rung} ({theirs})",
            race,
            rung,
            None if published is None else published / _THEIR_PEAK,
            one.bytes_moved or 0,
            datasheet_bytes_per_s,
        )
        if row.measured is None or one.device_ns is None or copy_ns is None:
            yield row
            continue
        of_copy = copy_ns.over(one.device_ns).median
        yield replace(
            row,
            limit=row.measured.median / of_copy,
            measured_share=of_copy,
            explanation=_beyond_the_copy(row, of_copy) + _why(race, one, copy_ns),
        )


def beside_the_copy(race: Race) -> Row:
    """The fastest rung's rate as a part of the device copy's, round by round."""
    copy_ns, peers = copy_times(race), {rung for _, rung, _ in _RUNGS}
    best = fastest(Race(race.size, tuple(one for one in race.entrants if one.name in peers)))
    if copy_ns is None or best.device_ns is None:
        return Row("fastest rung, of the device copy", "share", error=race.entrant(COPY).error)
    share = copy_ns.over(best.device_ns)
    return Row(
        "fastest rung, of the device copy",
        "share",
        measured=share,
        limit=None if best.bound_ns is None else copy_ns.median / best.bound_ns,
        measured_share=best.share_of_bound,
        explanation=f"{best.name}, {best.what}: {duration(best.device_ns.median)}, the copy "
        f"{duration(copy_ns.median)}; the limit is the rate of reads alone",
    )


def copy_times(race: Race) -> RoundSpread | None:
    """The device copy's times, in a graph or launched by the host: whichever is faster."""
    copy = race.entrant(COPY)
    times = [one for one in (copy.device_ns, copy.launched_ns) if one is not None]
    return min(times, key=lambda one: one.median, default=None)


def _beyond_the_copy(row: Row, of_copy: float) -> str:
    """What a published share, which is more than ours, would be of this GPU's device copy, where
    that is more than the copy."""
    if row.published is None or row.measured is None or row.published <= row.measured.median:
        return ""
    theirs = row.published / row.measured.median * of_copy
    return f"theirs would be {percent(theirs)} % of this GPU's device copy; " if theirs > 1 else ""


def _why(race: Race, one: EntrantFigures, copy_ns: RoundSpread) -> str:
    """What a rung moves and in which time, beside the rung before and the copy of its kind."""
    if one.device_ns is None or not one.bytes_moved:
        return ""
    times = {other.name: other.device_ns for other in race.entrants}
    text = f"{bytes_size(_bytes_per_s(one, one.device_ns.median))}/s with {one.what}"
    more = (one.traffic_bytes or one.bytes_moved) / one.bytes_moved - 1.0
    if more > 0.0:
        again = (one.device_ns.median / copy_ns.median - 1.0) / more
        text += (
            f"; asks for {bytes_size(one.traffic_bytes)}, of which {bytes_size(one.bytes_moved)} "
            f"must move: {percent(min(max(again, 0.0), 1.0))} % of its second reads, at the copy's "
            "rate, take as long as it takes beyond the copy"
        )
    if (earlier := times.get(_BEFORE.get(one.name, ""))) is not None:
        text += f"; {ratio_text(earlier.over(one.device_ns).median)} of {_BEFORE[one.name]}"
    if (bare := times.get(f"{one.name} copy")) is not None:
        ratio = ratio_text(one.device_ns.over(bare).median)
        text += f"; takes {ratio} the time of the same kernel without the norm"
    return text


def fastest(race: Race) -> EntrantFigures:
    """The entrant with the shortest time in a graph.

    Raises:
        MissingRequirement: none passed its check.
    """
    timed = [one for one in race.entrants if one.device_ns is not None]
    if not timed:
        raise MissingRequirement(f"{race.size}: no candidate runs on this GPU")
    return min(timed, key=_median_ns)


def _bytes_per_s(one: EntrantFigures, ns: float) -> float:
    return (one.bytes_moved or 0) / ns * 1e9


def _median_ns(one: EntrantFigures) -> float:
    return float("inf") if one.device_ns is None else one.device_ns.median
