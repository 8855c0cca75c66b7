"""Analyses one window of several servers: the traces of each, and all of them on one clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from decodescope.analyzer.reports.rank_analysis import analyze_ranks
from decodescope.analyzer.reports.user_facts import Given
from decodescope.analyzer.schema.ranks_report import RankReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION, ObserverReport
from decodescope.analyzer.schema.servers_report import ServerFigures, ServerReport, ServersReport

# Servers name their ranks each from 0 on.
_EXPECTED = ("duplicate_ranks", "missing_ranks")


@dataclass(frozen=True, slots=True)
class ServerTraces:
    """The traces of one server, and what watching it cost; neither for the reason in `problem`."""

    figures: ServerFigures
    paths: tuple[Path, ...] = ()
    observer: ObserverReport | None = None
    problem: str = ""


def analyze_servers(
    group: ServerFigures, observer: ObserverReport, servers: Sequence[ServerTraces], facts: Given
) -> ServersReport:
    """The report of one window of `servers`, of which `group` and `observer` are the sums.

    Raises:
        DecodescopeError: a trace cannot be read, as in `analyze_ranks`.
    """
    ranks = analyze_ranks([path for server in servers for path in server.paths], facts).report
    of_path = {rank.report.source.path: rank.report for rank in ranks.ranks}
    return ServersReport(
        schema_version=SCHEMA_VERSION,
        group=group,
        servers=tuple(
            ServerReport(
                server.figures,
                tuple(
                    RankReport(rank, replace(of_path[str(path)], observer=server.observer))
                    for rank, path in enumerate(server.paths)
                ),
                server.observer,
                server.problem,
            )
            for server in servers
        ),
        observer=observer,
        merged=None if ranks.merged is None else replace(ranks.merged, observer=observer),
        findings=tuple(each for each in ranks.findings if each.code not in _EXPECTED),
    )
