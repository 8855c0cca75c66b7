"""Reports of `claims` become sections: nothing is lost, nothing counted twice."""

import re

import msgspec
import pytest

from benchmarks.claims.report import ClaimsReport, Row, Source
from benchmarks.report.claims import reached, read_reports, sections
from benchmarks.report.documents import documents
from benchmarks.report.records import ROOT, read_records
from decodescope.analyzer.text.formatting import UNKNOWN
from tests.benchmarks.report.claim_reports import (
    BLOG,
    H100,
    H200,
    LADDER,
    ROWS,
    cells,
    claim,
    page,
    report,
    spread,
    tables,
)


def test_each_source_has_its_published_figures_for_every_gpu(reports):
    text = page(reports)
    assert re.findall(r"^## (A .* on .*)$", text, re.MULTILINE) == [
        f"A ladder on {H200}",
        f"A \\| blog on {H200}: 1 of 3 reached",
        f"A \\| blog on {H100}: 1 of 1 reached",
    ]
    table = text.partition("\n## ")[0]
    for row in ROWS:
        shown = ": " + row.what.replace("|", "\\|") + " |"
        assert table.count(shown) == (row.published is not None and not row.baseline), row.what
    assert "| x8.10 | x9.50 (limit x10.0) | 1 of 1 | x9.50 (limit x10.0) | 1 of 1 |" in table
    assert "| H200: not measured: int8: relative error 0.5 |" in table


def test_conditions_of_one_published_figure_stand_with_their_rounds_and_limits():
    rows = (
        Row("block after 64 tokens, graph", "ratio", 5.4, spread(9.5), 10.0),
        Row("block after 128 tokens, graph", "ratio", 5.4, spread(4.0)),
        Row("block after 256 tokens, graph", "ratio", 5.4, error="needs 80 GB"),
        Row("another", "ratio", 2.0, spread(4.0)),
    )
    text = page({"x": report(H200, claim("two", BLOG, rows=rows))})
    line = (
        "- `two`: block after … tokens, graph (theirs x5.40): 64 x9.50 (x9.40 to x9.69), limit "
        "x10.0; 128 x4.00 (x3.96 to x4.08); 256 not measured: needs 80 GB\n"
    )
    assert line in text
    assert text.count("- `two`") == 1


def test_every_row_of_every_table_has_the_cells_of_its_header(reports):
    written = documents(read_records(), reports)
    found = [
        table
        for path, text in written.items()
        if path.is_relative_to(ROOT / "docs")
        for table in tables(text)
    ]
    assert len(found) > 20
    for table in found:
        assert {len(cells(line)) for line in table} == {len(cells(table[0]))}, table[0]


def test_only_published_figures_count_as_reached_or_missed(reports):
    blog = next(one for one in sections(reports) if one.source == BLOG)
    # RMSNorm is reached, SwiGLU is not, INT8 failed; the A100's time of a launch does not count.
    assert reached(blog.measured[H200]) == (1, 3)
    assert reached(blog.measured[H100]) == (1, 1)


def test_times_and_rates_count_on_the_gpu_of_the_source_alone(reports):
    rows = (
        Row("a", "tokens_per_s", 1000.0, spread(1200.0)),
        Row("b", "ns", 1000.0, spread(1200.0), higher_is_better=False),
        Row("c", "launches", 72.0, spread(24.0), higher_is_better=False),
        Row("d", "tokens_per_s", 1000.0, spread(1200.0), comparable=False),
    )
    source = Source("two", "https://two.example", "H100, H200")
    other = Source("other", "https://other.example", "A100")
    found = sections(
        {
            "x": report(H200, claim("x", source, rows=rows)),
            "y": report(H200, claim("y", other, rows=rows)),
        }
    )
    assert [reached(section.measured[H200]) for section in found] == [(2, 3), (1, 1)]


def test_the_readme_counts_the_figures_that_are_reached_on_each_gpu(reports):
    def readme(reports: dict[str, ClaimsReport]) -> str:
        found = documents(read_records(), reports)
        return " ".join(
            next(text for path, text in found.items() if path.name == "README.md").split()
        )

    assert "1 of 3 are reached on an H200, 1 of 1 on an H100 80GB HBM3" in readme(reports)
    assert "are reached on" not in readme({})


def test_every_entrant_is_shown_the_fastest_first_a_wrong_one_with_its_error_alone(reports):
    text = page(reports)
    race = (
        "- prefill-norms, 2,048 tokens: same_bytes 2.40 µs, **ours** 2.50 µs, pytorch 20.0 µs, "
        "liger (relative error 0.5 (allowed: 0.001))\n"
    )
    assert text.count(race) == 2
    steps = "**fused+graph** 1.40 ms (GPU 700 µs), compiled 3.00 ms (GPU 1.50 ms)\n"
    assert text.count(steps) == 2


def test_the_forms_of_one_entrant_are_in_the_record_alone(reports):
    text = page(reports)
    assert "- rmsnorm, 2^18 x 2^12: device copy 2.10 µs, **looped** 4.00 µs\n" in text
    assert "1024 columns" not in text


def test_a_section_names_the_record_its_clocks_and_its_noise(reports):
    line = next(one for one in page(reports).splitlines() if one.startswith("- `claims/h100.json`"))
    for part in (
        "4,600 GB/s",
        "1,755 to 1,980 MHz",
        "up to 512 W",
        "throttled: sw_power_cap",
        "within 3.0 %",
    ):
        assert part in line


def test_reports_are_in_the_list_of_records_below_their_machine(reports):
    listed = page(reports, "records")
    for names, gpu in (("claims/h200-a`, `claims/h200-b", H200), ("claims/h100", H100)):
        machine = listed.partition(f"## {gpu}, driver 580.1, torch 2.11.0\n")[2].partition("##")[0]
        assert f"| `{names}` | 2026-11-22 | abcdef012 |" in machine


def test_a_claim_in_two_files_of_one_gpu_is_refused(reports):
    again = reports | {"again": report(H200, claim("tk-gemm", LADDER))}
    with pytest.raises(SystemExit, match=r"tk-gemm on NVIDIA H200 is in .*again\.json"):
        sections(again)
    other_gpu = reports | {"other": report(H100, claim("tk-gemm", LADDER))}
    assert len(sections(other_gpu)) == 2


def test_without_reports_there_is_no_page_of_claims_and_no_link_to_it(tmp_path):
    assert read_reports(tmp_path) == {}
    found = documents(read_records(), {})
    assert all(path.name != "claims.md" for path in found)
    assert all("claims.md" not in text for text in found.values())


def test_a_report_is_read_as_it_was_written(tmp_path, reports):
    for name, one in reports.items():
        (tmp_path / f"{name}.json").write_bytes(msgspec.json.encode(one))
    assert read_reports(tmp_path) == reports


def test_a_claim_that_failed_stays_with_its_error(reports):
    failed = msgspec.structs.replace(claim("broken", BLOG), error="needs 80 GB")
    text = page(reports | {"failed": report(H200, failed)})
    unknown = " | ".join([UNKNOWN] * 5)
    assert f"| `broken`: what broken says | {unknown} | not measured: needs 80 GB |" in text
