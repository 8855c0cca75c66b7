"""The structures of several ranks of one run, and of servers that run already: their reports, the
merged one, and what they say of themselves."""

from msgspec import Struct

from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import Finding, ObserverReport, Report


class RankReport(Struct, frozen=True):
    rank: int
    report: Report


class RanksReport(Struct, frozen=True):
    """`merged` is the report of all ranks on one clock, one device for each (rank, GPU); if it is
    null, `findings` says why."""

    schema_version: int
    ranks: tuple[RankReport, ...]
    merged: Report | None
    findings: tuple[Finding, ...]
    communication: CommunicationReport = CommunicationReport(())


class ServerFigures(Struct, frozen=True):
    """A server, or a group of `servers`, by its own metrics; null where it does not say it.

    Rates and quantiles are of the `elapsed_s` since it was asked before; null the first time.
    `kv_fill` is from 0 to 1. `problem` is why it does not answer, "" if it does. `restarted`: its
    counters went back, so nothing is known of the time between.

    A group has the sums of those that answer, the mean of `kv_fill`, and the quantiles of all
    their tokens.
    """

    name: str = ""
    problem: str = ""
    restarted: bool = False
    elapsed_s: float | None = None
    generated_per_s: float | None = None
    prompt_per_s: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_fill: float | None = None
    inter_token_p50_s: float | None = None
    inter_token_p99_s: float | None = None
    servers: tuple["ServerFigures", ...] = ()


class ServerReport(Struct, frozen=True):
    """The part of one server in a window of several: the reports of its traces, one a rank, and
    what watching cost. Without a window both are missing, and without traces that can be read the
    reports are, for the reason in `problem`. `figures` are of the second before the window."""

    figures: ServerFigures
    ranks: tuple[RankReport, ...] = ()
    observer: ObserverReport | None = None
    problem: str = ""


class ServersReport(Struct, frozen=True):
    """One window of several servers at one moment. `group` is what all of them said in the second
    before it, `observer` the sum of their tokens/s. `merged` is the report of all traces on one
    clock; if it is null, `findings` says why."""

    schema_version: int
    group: ServerFigures
    servers: tuple[ServerReport, ...]
    observer: ObserverReport
    merged: Report | None
    findings: tuple[Finding, ...]
