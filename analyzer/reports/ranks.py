"""Reads and analyses the traces of several ranks of one run, one file for each."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.readers.ranks import merge_ranks
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.given import NOTHING, Given
from decodescope.analyzer.schema.report import SCHEMA_VERSION, RankReport, RanksReport


@dataclass(frozen=True, slots=True, eq=False)
class RanksAnalysis:
    """The report, and the analyses it was built from: (rank, its own), and the merged trace's."""

    report: RanksReport
    ranks: tuple[tuple[int, Analysis], ...]
    merged: Analysis | None


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
    ranks = merge_ranks([load(path) for path in paths])
    alone = tuple((rank, analyze(trace, given)) for rank, trace in ranks.ranks)
    merged = None if ranks.merged is None else analyze(ranks.merged, given)
    report = RanksReport(
        schema_version=SCHEMA_VERSION,
        ranks=tuple(RankReport(rank, analysis.report) for rank, analysis in alone),
        merged=None if merged is None else merged.report,
        findings=ranks.findings,
    )
    return RanksAnalysis(report, alone, merged)


def _refuse_twice(paths: Sequence[str]) -> None:
    named: set[tuple[int, int]] = set()
    for path in paths:
        if os.path.exists(path):
            found = os.stat(path)
            if (found.st_dev, found.st_ino) in named:
                raise InputError(f"{path}: named twice; give one file for each rank")
            named.add((found.st_dev, found.st_ino))
