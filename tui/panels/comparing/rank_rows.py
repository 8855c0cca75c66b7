"""The ranks of one run with their files, which can be chosen for a comparison."""

from collections.abc import Sequence
from pathlib import Path

from decodescope.analyzer.reports.step_figures import communication_fraction
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.tables.waiting_table import RankFile, WaitingRow, waiting_table
from decodescope.tui.model.candidates import Candidate
from decodescope.tui.panels.table_rows import TableRows


def rank_rows(found: Sequence[Candidate], report: RanksReport) -> TableRows[WaitingRow] | None:
    """A row for each rank; None if the file of one is no candidate."""
    of_path = {Path(candidate.about) / candidate.name: candidate for candidate in found}
    files: dict[int, RankFile] = {}
    for rank in report.ranks:
        candidate = of_path.get(Path(rank.report.source.path))
        if candidate is None:
            return None
        share = communication_fraction(rank.report)
        files[rank.rank] = RankFile(candidate.name, candidate.chosen, share)
    return TableRows(waiting_table(report.communication, files))
