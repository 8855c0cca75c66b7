"""Writes docs/results.md, the pages of docs/results with their plots, and the table of results in
README.md from the records.

The same records give the same bytes. Every figure comes from a record; sentences are in the
templates of this folder.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import rich_click as click

from benchmarks.claims.report import ClaimsReport
from benchmarks.report.claim_plots import claim_plots
from benchmarks.report.claims import Section, read_reports, sections
from benchmarks.report.page import render
from benchmarks.report.plots import plots
from benchmarks.report.records import ROOT, Record, read_records
from decodescope.analyzer.io.files import write_atomically
from decodescope.cli.output import say

COMMAND = "make results"
DOCS = ROOT / "docs"
PLOTS = DOCS / "plots"
CLAIMS = "results/claims"
# The pages that have a template of their name, below docs/.
PAGES = (
    "results",
    "results/accuracy",
    CLAIMS,
    "results/comparisons",
    "results/costs",
    "results/kernels",
    "results/ranks",
    "results/records",
    "results/scaling",
)
_README_BLOCK = re.compile(r"(?<=<!-- make results -->\n).*?(?=<!-- end of make results -->)", re.S)


def documents(
    records: Mapping[str, Record], reports: Mapping[str, ClaimsReport]
) -> dict[Path, str]:
    """Every file that is written from the records and from the reports of `claims`, with its text;
    no page of claims without reports."""
    found = sections(reports)
    of_claims = claim_plots(found)
    environments = {name: record["environment"] for name, record in records.items()}
    environments |= {f"claims/{name}": report.environment for name, report in reports.items()}
    values = {"environments": environments, "sections": found, "plots_of": of_claims.get}
    pages = {
        DOCS / f"{page}.md": render(f"{Path(page).name}.md.j2", records, **values)
        for page in PAGES
        if found or page != CLAIMS
    }
    drawn = plots(records) | {plot.file: plot.svg for every in of_claims.values() for plot in every}
    return {
        **pages,
        ROOT / "README.md": with_results((ROOT / "README.md").read_text("utf-8"), records, found),
        **{PLOTS / name: text for name, text in drawn.items()},
    }


def with_results(
    readme: str, records: Mapping[str, Record], claimed: Sequence[Section] = ()
) -> str:
    """`readme` with the block between its two marks replaced."""
    table = render("readme.md.j2", records, sections=claimed)
    replaced, times = _README_BLOCK.subn(lambda _: table, readme)
    if times != 1:
        raise SystemExit("README.md has not exactly one block between its marks for make results")
    return replaced


@click.command("results")
def command() -> None:
    """Write the pages of results, their plots and the README's table from the records."""
    written = documents(read_records(), read_reports())
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.encode())
    for path in set(PLOTS.glob("*.svg")) - set(written):
        path.unlink()
    say(f"{len(written)} files")
