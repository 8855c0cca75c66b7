"""The structures of several ranks of one run: their reports, the merged one, their
communication."""

from msgspec import Struct

from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.report import Finding, Report


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
