"""The structures of several ranks of one run: their reports, who waits for whom, and the skew."""

from msgspec import Struct

from decodescope.analyzer.schema.launch_report import Percentiles
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.waiting_report import (
    ClockSource,
    CollectiveReport,
    RankWaiting,
    Straggler,
)


class RankReport(RankWaiting, frozen=True, kw_only=True):
    """One rank: its communication, and its own report."""

    report: Report


class StepSkew(Struct, frozen=True):
    """One step over all ranks: last - first start and end of its GPU spans, longest - shortest
    span, and the ranks that start and end it last. It lasts for `length_ns` from its first start,
    `at_ns` after the first op of all ranks, to its last end. What needs a common clock is null
    without one.
    """

    index: int
    start_spread_ns: int | None
    end_spread_ns: int | None
    duration_spread_ns: int
    last_to_start: int | None
    last_to_end: int | None
    at_ns: int | None = None
    length_ns: int | None = None


class SkewReport(Struct, frozen=True):
    """The skew of the `steps` that all of `ranks` recorded. `worst` holds those with the widest
    starts (durations, without a common clock), at most 20, in order of index on the first rank;
    `last_to_start` counts the steps that each rank, by number, starts last."""

    ranks: tuple[int, ...]
    steps: int
    start_spread_ns: Percentiles | None
    end_spread_ns: Percentiles | None
    duration_spread_ns: Percentiles | None
    last_to_start: dict[int, int]
    worst: tuple[StepSkew, ...]


class RanksReport(Struct, frozen=True):
    """`merged` is the report of all ranks on one clock, one device for each (rank, GPU); if it is
    null, `findings` says why.

    `clock` says how waiting was found: from the starts of the ranks on a "common" clock, or from
    "durations", with the ends of each collective taken as simultaneous, where the clocks of a group
    disagree or are not common; null without matched collectives. If `straggler` is null,
    `no_straggler` says why. `collectives` are in order of their ops' total time.
    """

    schema_version: int
    ranks: tuple[RankReport, ...]
    merged: Report | None
    findings: tuple[Finding, ...]
    clock: ClockSource | None = None
    straggler: Straggler | None = None
    no_straggler: str = ""
    collectives: tuple[CollectiveReport, ...] = ()
    skew: SkewReport | None = None
