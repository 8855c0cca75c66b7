"""The structures of several ranks of one run: their reports, who waits for whom, and the skew."""

from msgspec import Struct

from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.schema.waiting_report import (
    ClockSource,
    CollectiveReport,
    RankWaiting,
    SkewReport,
    Straggler,
)


class RankReport(RankWaiting, frozen=True, kw_only=True):
    """One rank: its communication, and its own report."""

    report: Report


class RanksReport(Struct, frozen=True):
    """`merged` is the report of all ranks on one clock, one device for each (rank, GPU); if it is
    null, `findings` says why.

    `clock` says how waits were found: from the starts of the ranks on a "common" clock, or from
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
