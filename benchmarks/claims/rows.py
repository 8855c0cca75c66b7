"""Rows from races: a published figure beside the one measured, and what makes the difference.

Every explanation is computed from the figures of the same run, so it is true on any GPU.
"""

from msgspec.structs import replace

from benchmarks.claims.report import EntrantFigures, Race, Row
from decodescope.analyzer.text.formatting import bytes_size, duration, number, percent, significant
from decodescope.variants.tuning.report import RoundSpread

# Times within this factor of the bound are as good as at it.
_NEAR = 1.05


def speed_up(
    what: str,
    race: Race,
    baseline: str,
    ours: str,
    published: float | None,
    launch_floor_ns: float = 0.0,
    launched: bool = False,
) -> Row:
    """How many times as fast `ours` is as `baseline`, round by round, in device time; with
    `launched`, in the time of calls that the host launches.

    Its limit is the baseline's time ÷ the larger of bound and launch floor.
    """
    base, other = race.entrant(baseline), race.entrant(ours)
    if (error := base.error or other.error) is not None:
        failed = baseline if base.error else ours
        return Row(what, "ratio", published, error=f"{failed}: {error}")
    base_ns, our_ns = (one.launched_ns if launched else one.device_ns for one in (base, other))
    if base_ns is None or our_ns is None:
        return Row(what, "ratio", published, error="not measured in a CUDA graph")
    least_ns = None if other.bound_ns is None else max(other.bound_ns, launch_floor_ns)
    row = Row(
        what,
        "ratio",
        published,
        base_ns.over(our_ns),
        limit=None if least_ns is None else base_ns.median / least_ns,
        measured_share=other.share_of_bound,
    )
    explanation = _host_explains(race, base, other) if launched else ""
    explanation = explanation or _why(row, base, other, least_ns, launch_floor_ns)
    return replace(row, explanation=explanation)


def share_of_peak(
    what: str,
    race: Race,
    name: str,
    published: float | None,
    counted_bytes: int,
    peak_bytes_per_s: float | None,
) -> Row:
    """`counted_bytes` ÷ device time ÷ a peak that a source gives its shares of, round by round.

    The count is the source's, and may be more than the work moves: then the share may be over 1.
    Its limit is that of a launch that takes the bound.
    """
    one = race.entrant(name)
    if one.error is not None or one.device_ns is None or peak_bytes_per_s is None:
        return Row(what, "share", published, error=one.error or "the peak is not known")
    least_ns = counted_bytes / peak_bytes_per_s * 1e9
    share = RoundSpread.of([least_ns / ns for ns in one.device_ns.rounds])
    text = f"{bytes_size(counted_bytes)} by this count in {duration(one.device_ns.median)}"
    if one.bytes_moved and _differ(one.bytes_moved, counted_bytes):
        text += f"; the work needs {bytes_size(one.bytes_moved)}"
    if one.bytes_moved and one.traffic_bytes and _differ(one.traffic_bytes, one.bytes_moved):
        text += f"; {one.name} moves {bytes_size(one.traffic_bytes)}"
    return Row(
        what,
        "share",
        published,
        share,
        None if one.bound_ns is None else least_ns / one.bound_ns,
        measured_share=one.share_of_bound,
        explanation=text,
    )


def _differ(some: int, other: int) -> bool:
    return max(some, other) > _NEAR * min(some, other)


def _why(
    row: Row,
    base: EntrantFigures,
    ours: EntrantFigures,
    least_ns: float | None,
    floor_ns: float,
) -> str:
    if base.device_ns is None or ours.device_ns is None or least_ns is None or row.limit is None:
        return f"{ours.name} takes {_time(ours)}, {base.name} {_time(base)}"
    bound = f"{duration(least_ns)}, {'a launch' if least_ns == floor_ns else 'the bound'}"
    over = ours.device_ns.median / least_ns
    near = "about" if over < _NEAR else f"{significant(over)} x"
    text = f"{base.name} takes {significant(row.limit)} x {bound}{_work_done(base)}; "
    if row.published is not None and row.limit < row.published:
        return f"{text}no kernel can be {significant(row.published)} x as fast as that here"
    return f"{text}{ours.name} takes {near} that{_work_done(ours)}"


def _work_done(one: EntrantFigures) -> str:
    """Its launches, and how many times the bytes that the work needs they move, where more."""
    parts = []
    if one.launches is not None and one.launches > 1:
        parts.append(f"{number(one.launches)} launches")
    if one.traffic_bytes and one.bytes_moved and one.traffic_bytes > _NEAR * one.bytes_moved:
        parts.append(f"{significant(one.traffic_bytes / one.bytes_moved)} x the bytes")
    return f" ({', '.join(parts)})" if parts else ""


def _host_explains(race: Race, base: EntrantFigures, ours: EntrantFigures) -> str:
    """For times that the host decides: how much of each is the GPU's."""
    if base.device_ns is None or ours.device_ns is None:
        return ""
    what = "a step" if race.of == "steps" else "launched one by one"
    return f"{what}: {gpu_share(base)}; {gpu_share(ours)}"


def gpu_share(one: EntrantFigures) -> str:
    """The time with launches, and the part of it in which the GPU works."""
    if one.launched_ns is None or one.device_ns is None:
        return f"{one.name} {_time(one)}"
    share = min(one.device_ns.median / one.launched_ns.median, 1.0)
    return (
        f"{one.name} {duration(one.launched_ns.median)}, of which the GPU works {percent(share)} %"
    )


def _time(one: EntrantFigures) -> str:
    times = one.device_ns or one.launched_ns
    return duration(None if times is None else times.median)
