"""Rows of decode races: tokens per second beside a published figure, and how near its bound."""

from benchmarks.claims.report import EntrantFigures, Race, Row
from benchmarks.claims.rows import gpu_share
from decodescope.analyzer.text.formatting import duration, number, percent


def tokens_per_s(
    what: str,
    race: Race,
    name: str,
    published: float | None = None,
    published_peak_bytes_per_s: float | None = None,
) -> Row:
    """Tokens per second of one variant, round by round; the limit is the read peak ÷ the bytes that
    its step must read.

    `published` was measured on a GPU whose datasheet peak is `published_peak_bytes_per_s`: its
    share of that is taken with the same bytes.
    """
    one = race.entrant(name)
    if one.error is not None or one.per_s is None:
        return Row(what, "tokens_per_s", published, error=one.error or "not measured")
    share = None
    if published is not None and published_peak_bytes_per_s and one.bytes_moved:
        share = published * one.bytes_moved / published_peak_bytes_per_s
    return Row(
        what,
        "tokens_per_s",
        published,
        one.per_s,
        limit=None if one.bound_ns is None else 1e9 / one.bound_ns,
        published_share=share,
        measured_share=one.share_of_bound,
        explanation=where_the_step_goes(one),
    )


def gpu_time(what: str, race: Race, name: str) -> Row:
    """The time in which the GPU works in a step of one variant, beside its bound."""
    one = race.entrant(name)
    if one.error is not None or one.device_ns is None:
        return Row(what, "ns", error=one.error or "no profiled step")
    return Row(
        what,
        "ns",
        None,
        one.device_ns,
        limit=one.bound_ns,
        measured_share=None if one.bound_ns is None else one.bound_ns / one.device_ns.median,
        higher_is_better=False,
        explanation=where_the_step_goes(one),
    )


def where_the_step_goes(one: EntrantFigures) -> str:
    """The step's time, how much of it the GPU works, in how many launches, and what the bytes would
    take."""
    text = gpu_share(one)
    if one.launches is not None:
        text += f", {number(one.launches)} launch call{'s' * (one.launches != 1)}"
    if one.bound_ns is not None and one.device_ns is not None:
        text += (
            f"; its bytes take {duration(one.bound_ns)} at the read peak, "
            f"{percent(one.bound_ns / one.device_ns.median)} % of the GPU's time"
        )
    return text
