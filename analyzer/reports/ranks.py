"""Reads and analyses the traces of several ranks of one run, one file for each."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.given import NOTHING, Given
from decodescope.analyzer.reports.rank_figures import rank_figures
from decodescope.analyzer.reports.rank_reading import read_ranks
from decodescope.analyzer.schema.ranks_report import RankReport, RanksReport
from decodescope.analyzer.schema.report import SCHEMA_VERSION
from decodescope.analyzer.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)
class RanksAnalysis:
    """The report, the trace of each rank as (rank, trace), and the analysis of the merged trace."""

    report: RanksReport
    traces: tuple[tuple[int, Trace], ...]
    merged: Analysis | None
    given: Given = NOTHING

    def alone(self) -> tuple[tuple[int, Analysis], ...]:
        """(rank, its own analysis), for views that draw time; computed anew by every call."""
        return tuple((rank, analyze(trace, self.given)) for rank, trace in self.traces)

    def all_merged(self, wanted: str) -> Analysis:
        """The analysis of the merged trace.

        Raises:
            InputError: the ranks are not merged, with what was `wanted` and why.
        """
        if self.merged is None:
            reasons = "; ".join(finding.message for finding in self.report.findings)
            raise InputError(f"{wanted}: {reasons}; give one file")
        return self.merged


def analyze_ranks(paths: Sequence[Path | str], given: Given = NOTHING) -> RanksAnalysis:
    """Read and analyse one file for each rank; `given` counts for each.

    Raises:
        InputError: no file, one file twice, or two files with the same events; or what is `given`
            is not what it should be.
        TraceError: a file is not a trace.
    """
    if not paths:
        raise InputError("no trace files; name one for each rank")
    _refuse_twice([str(path) for path in paths])
    read = read_ranks([str(path) for path in paths], given)
    ranks = merge_ranks([one.trace for one in read])
    of_trace = {id(one.trace): one for one in read}
    merged = None if ranks.merged is None else analyze(ranks.merged, given)
    alone = [(rank, trace, of_trace[id(trace)]) for rank, trace in ranks.ranks]
    across = rank_figures(
        [(rank, trace, one.steps) for rank, trace, one in alone],
        [RankReport(rank, report=one.report) for rank, _, one in alone],
        common_clock=merged is not None,
    )
    report = RanksReport(
        schema_version=SCHEMA_VERSION,
        ranks=across.ranks,
        merged=None if merged is None else merged.report,
        findings=(*ranks.findings, *across.findings),
        clock=across.clock,
        straggler=across.straggler,
        no_straggler=across.no_straggler,
        collectives=across.collectives,
        skew=across.skew,
    )
    return RanksAnalysis(report, ranks.ranks, merged, given)


def _refuse_twice(paths: Sequence[str]) -> None:
    named: set[tuple[int, int]] = set()
    for path in paths:
        if os.path.exists(path):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) in named:
                raise InputError(f"{path}: named twice; give one file for each rank")
            named.add((found.st_dev, found.st_ino))
