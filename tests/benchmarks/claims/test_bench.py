"""`claims`: one claim's failure or an interruption loses no other claim."""

from collections.abc import Callable

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.claims.bench import comparable_with, measure_claims
from benchmarks.claims.catalog import CLAIMS, chosen_claims
from benchmarks.claims.claim import Claim, Measured, Setup
from benchmarks.claims.command import command
from benchmarks.claims.racing import Racing
from benchmarks.claims.report import ClaimResult, ClaimsReport, Row, Source
from benchmarks.claims.table import claims_table, row_name
from benchmarks.claims.watching import ClockWatch
from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.tuning.report import RoundSpread
from tests.helpers.fake_clock import FakeClock

SOURCE = Source("a paper", "https://example.org", "H100")
ROW = Row("a ratio", "ratio", 2.0, RoundSpread.of([1.9, 2.1, 2.2]), limit=4.0)


def claim(name: str, measure: Callable[[Setup], Measured]) -> Claim:
    return Claim(name, f"title of {name}", SOURCE, measure)


def measured(*claims: Claim) -> tuple[ClaimResult, ...]:
    racing = Racing(FakeClock(1e3), 1 << 20, 1e12, {}, 3)  # type: ignore[arg-type]
    return measure_claims(
        claims, Setup(racing, lambda stage: None), ClockWatch(None), "NVIDIA H100"
    )


def works(setup: Setup) -> Measured:
    return Measured((ROW,))


def fails(setup: Setup) -> Measured:
    raise MissingRequirement("out of GPU memory")


def interrupted(setup: Setup) -> Measured:
    raise KeyboardInterrupt


def test_a_claim_that_fails_does_not_end_the_others() -> None:
    failed, worked = measured(claim("one", fails), claim("two", works))
    assert (failed.error, failed.rows) == ("out of GPU memory", ())
    assert (worked.error, worked.rows) == (None, (ROW,))


def test_an_interruption_keeps_the_complete_claims() -> None:
    results = measured(claim("one", works), claim("two", interrupted), claim("three", works))
    assert [one.error for one in results] == [None, "interrupted", "interrupted"]
    assert results[0].rows == (ROW,)
    with pytest.raises(KeyboardInterrupt):
        measured(claim("one", interrupted), claim("two", works))


def test_what_compares_is_said() -> None:
    assert "every figure compares" in comparable_with(SOURCE, "NVIDIA H100 80GB HBM3")
    other = comparable_with(SOURCE, "NVIDIA H200")
    assert "published for H100" in other
    assert "do not compare" in other
    assert "no GPU" in comparable_with(Source("", "", ""), "NVIDIA H200")


def test_a_gpu_is_known_by_its_whole_name() -> None:
    both = Source("", "", "H100, H200")
    assert both.gpu_like("NVIDIA H200") == "H200"
    assert both.gpu_like("NVIDIA H100 80GB HBM3") == "H100"
    assert both.gpu_like("NVIDIA GH200 480GB") is None
    assert Source("", "", "").gpu_like("NVIDIA H200") is None


def test_the_table_shows_rows_and_errors_and_json_reads_back() -> None:
    claims = measured(claim("one", works), claim("two", fails))
    facts = dict.fromkeys(("gpu", "driver", "cuda", "torch", "triton", "transformers", "commit"))
    report = ClaimsReport(1, 1e12, None, None, 1e3, 1, 3, claims, facts | {"decodescope": "1"})
    assert msgspec.json.decode(msgspec.json.encode(report), type=ClaimsReport) == report
    assert report.errors == ("two: out of GPU memory",)
    console = Console(width=160)
    with console.capture() as capture:
        console.print(claims_table(report))
    text = capture.get()
    for part in ("x2.00", "x2.10 (x1.90 to x2.20)", "x4.00", "not measured: out of GPU memory"):
        assert part in text


@pytest.mark.parametrize("published", [1.0, 3.0])
def test_what_a_source_improves_on_is_neither_reached_nor_missed(published: float) -> None:
    row = Row("idle", "ratio", published, RoundSpread.of([2.0]))
    assert row.reached is (published < 2.0)
    baseline = msgspec.structs.replace(row, baseline=True)
    assert baseline.reached is None
    assert (row_name(row), row_name(baseline)) == ("idle", "idle (baseline)")


def test_every_claim_has_a_name_of_its_own_and_a_source() -> None:
    names = [one.name for one in CLAIMS]
    assert len(set(names)) == len(names)
    assert all(one.source.url.startswith("https://") for one in CLAIMS)
    assert all(0 < len(one.source.name) <= 20 for one in CLAIMS)
    assert chosen_claims(()) == CLAIMS
    assert [one.name for one in chosen_claims((names[-1], names[0]))] == [names[0], names[-1]]


def test_bad_options_get_one_line() -> None:
    run = CliRunner().invoke
    listed = run(command, ["--list"])
    assert listed.exit_code == 0
    assert len(listed.output.splitlines()) == len(CLAIMS)
    unknown = run(command, ["--only", "nothing"])
    assert "no such claim; there are kernl-rope" in str(unknown.exception)
    elsewhere = run(command, ["--gpt-fast", "/nowhere"])
    assert "no checkout of gpt-fast" in str(elsewhere.exception)
