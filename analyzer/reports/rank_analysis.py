"""Reads and analyses the traces of several ranks of one run, one file for each, or of one window of
several servers: each trace alone, and all of them on one clock."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from decodescope.analyzer.collectives.groups import MatchedCollectives, match_collectives
from decodescope.analyzer.collectives.participants import find_participants
from decodescope.analyzer.errors import InputError, known_error
from decodescope.analyzer.readers.ranks import merge_ranks, refuse_copies
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.communication import communication_report, rank_steps
from decodescope.analyzer.reports.rank_reading import ReadRank, read_each, read_ranks
from decodescope.analyzer.reports.user_facts import NOTHING, Given
from decodescope.analyzer.schema.communication_report import CommunicationReport
from decodescope.analyzer.schema.ranks_report import (
    RankReport,
    RanksReport,
    ServerFigures,
    ServerReport,
    ServersReport,
)
from decodescope.analyzer.schema.report import SCHEMA_VERSION, Finding, ObserverReport
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.trace import Trace

# Servers name their ranks each from 0 on.
_EXPECTED = ("duplicate_ranks", "missing_ranks")


@dataclass(frozen=True, slots=True, eq=False)
class RanksAnalysis:
    """The report, the trace of each rank as (rank, trace), and the analysis of the merged trace."""

    report: RanksReport
    traces: tuple[tuple[int, Trace], ...]
    merged: Analysis | None
    facts: Given = NOTHING

    def alone(self) -> tuple[tuple[int, Analysis], ...]:
        """(rank, its own analysis), for views that draw time; computed anew by every call."""
        return tuple((rank, analyze(trace, self.facts)) for rank, trace in self.traces)

    def all_merged(self, wanted: str) -> Analysis:
        """The analysis of the merged trace.

        Raises:
            InputError: the ranks are not merged, with what was `wanted` and why.
        """
        if self.merged is None:
            reasons = "; ".join(finding.message for finding in self.report.findings)
            raise InputError(f"{wanted}: {reasons}; give one file")
        return self.merged


def analyze_ranks(paths: Sequence[Path | str], facts: Given = NOTHING) -> RanksAnalysis:
    """Read and analyse one file for each rank; the `facts` hold for each.

    Raises:
        InputError: no file, one file twice, or two files with the same events; or one of the
            `facts` is not what it should be.
        TraceError: a file is not a trace.
    """
    if not paths:
        raise InputError("no trace files; name one for each rank")
    _refuse_twice([str(path) for path in paths])
    return _analyzed(read_ranks([str(path) for path in paths], facts), facts)


def _analyzed(read: Sequence[ReadRank], facts: Given) -> RanksAnalysis:
    ranks = merge_ranks([rank.trace for rank in read])
    of_trace = {id(rank.trace): rank for rank in read}
    merged = None if ranks.merged is None else analyze(ranks.merged, facts)
    communication, findings = ranks_communication(
        [(rank, trace, of_trace[id(trace)].steps) for rank, trace in ranks.ranks],
        common_clock=merged is not None,
    )
    report = RanksReport(
        schema_version=SCHEMA_VERSION,
        ranks=tuple(RankReport(rank, of_trace[id(trace)].report) for rank, trace in ranks.ranks),
        merged=None if merged is None else merged.report,
        findings=(*ranks.findings, *findings),
        communication=communication,
    )
    return RanksAnalysis(report, ranks.ranks, merged, facts)


def ranks_communication(
    ranks: Sequence[tuple[int, Trace, Steps]], common_clock: bool
) -> tuple[CommunicationReport, tuple[Finding, ...]]:
    """The communication of (rank, trace, steps), and findings about their clocks. `common_clock`
    says whether the wall clocks of the traces are one."""
    operations, participants = find_participants(ranks)
    matched = match_collectives(operations, participants, common_clock)
    began_ns = [
        trace.base_ns + int(trace.ops.start_ns[0]) for _, trace, _ in ranks if len(trace.ops)
    ]
    report = communication_report(
        matched,
        {rank: rank_steps(trace, steps) for rank, trace, steps in ranks},
        "rank",
        common_clock=common_clock,
        first_op_ns=min(began_ns, default=0),
    )
    return report, _clock_findings(matched, common_clock)


def _refuse_twice(paths: Sequence[str]) -> None:
    named: set[tuple[int, int]] = set()
    for path in paths:
        if os.path.exists(path):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in named:
                raise InputError(f"{path}: named twice; give one file for each rank")
            named.add((status.st_dev, status.st_ino))


def _clock_findings(matched: MatchedCollectives, common_clock: bool) -> tuple[Finding, ...]:
    """Clocks that share a base, and yet disagree by more than a transfer takes."""
    apart = [group for group in matched.matched_groups if common_clock and group.by_durations]
    if not apart:
        return ()
    group = max(apart, key=lambda group: int(np.ptp(group.clock_ns)))
    first, last = int(group.clock_ns.argmin()), int(group.clock_ns.argmax())
    ranks = [matched.participants[group.members[place]].rank for place in (last, first)]
    ahead_ns = int(np.ptp(group.clock_ns))
    return (
        Finding(
            "clocks_apart",
            f"by the ends of their collectives, the clock of rank {ranks[0]} is "
            f"{ahead_ns / 1e3:.1f} µs ahead of rank {ranks[1]}'s, longer than a transfer takes; "
            "waits are found from durations, and times across ranks are off by that much",
        ),
    )


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
    """The report of one window of `servers`, of which `group` and `observer` are the sums. A server
    with a trace that cannot be read has the reason as its `problem`, and is left out of `merged`.

    Raises:
        DecodescopeError: this is so for every server; the reason of the first.
    """
    paths = [str(path) for server in servers for path in server.paths]
    result_at = dict(read_each(paths, facts))
    results = (result_at[place] for place in range(len(paths)))
    read: list[ReadRank] = []
    reports: list[ServerReport] = []
    errors: list[Exception] = []
    for server in servers:
        own, problem = [], server.problem
        try:
            own = _sound(list(islice(results, len(server.paths))), read)
        except Exception as error:
            errors.append(error)
            problem = str(known_error(error))
        read += own
        reports.append(_server_report(server, own, problem))
    if not read:
        raise errors[0]
    ranks = _analyzed(read, facts).report
    return ServersReport(
        schema_version=SCHEMA_VERSION,
        group=group,
        servers=tuple(reports),
        observer=observer,
        merged=None if ranks.merged is None else replace(ranks.merged, observer=observer),
        findings=tuple(each for each in ranks.findings if each.code not in _EXPECTED),
    )


def _sound(results: Sequence[ReadRank | Exception], others: Sequence[ReadRank]) -> list[ReadRank]:
    """The ranks of one server; raises the first error among `results`, and `InputError` if two of
    these and `others` hold the same events."""
    own: list[ReadRank] = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        own.append(result)
    refuse_copies([rank.trace for rank in (*others, *own)])
    return own


def _server_report(server: ServerTraces, own: Sequence[ReadRank], problem: str) -> ServerReport:
    ranks = tuple(
        RankReport(rank, replace(one.report, observer=server.observer))
        for rank, one in enumerate(own)
    )
    return ServerReport(server.figures, ranks, server.observer, problem)
