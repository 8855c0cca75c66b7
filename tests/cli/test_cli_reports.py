"""diff, compare, ranks and exports as scripts use them: files, exit codes, one error line."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Comparison, Diff
from decodescope.analyzer.schema.rank_report import RanksReport
from decodescope.cli import main as cli
from decodescope.variants.comparing import command as compare
from tests.helpers.comparison_reports import runs_of
from tests.helpers.kineto_events import call, document, op

COMPILED, EAGER = (str(path) for path in bundled_recordings())


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        last = self.err.splitlines()[-1]
        assert last.startswith("decodescope: ")
        return last


Command = Callable[..., Done]


@pytest.fixture
def decodescope(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["decodescope", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, *capfd.readouterr())

    return run


def rank_file(folder: Path, rank: int, base_ns: int = 10**18) -> str:
    path = folder / f"rank{rank}.json"
    events = [call(1, 3, 5), op(10, 60 + rank, 5, name=f"kernel_of_{rank}")]
    keys = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": base_ns}
    path.write_bytes(document(events, **keys))
    return str(path)


def test_diff_says_what_changed_and_writes_it(decodescope: Command, tmp_path: Path) -> None:
    done = decodescope("diff", EAGER, COMPILED, "--json", "--out", str(tmp_path / "new" / "diff"))
    assert done.code == 0
    diff = msgspec.json.decode(done.out, type=Diff)
    assert (diff.pair.launch_calls.base, diff.pair.launch_calls.other) == (679, 3)
    written = tmp_path / "new" / "diff"
    assert {path.name for path in written.iterdir()} == {"diff.json", "diff.md", "diff.html"}
    assert msgspec.json.decode((written / "diff.json").read_bytes(), type=Diff) == diff
    assert "679" in (written / "diff.md").read_text()
    assert (written / "diff.html").read_text().rstrip().endswith("</html>")


def test_a_slower_trace_fails_the_gate_with_code_1(decodescope: Command) -> None:
    done = decodescope("diff", COMPILED, EAGER, "--fail-on-regression", "5")
    assert done.code == 1
    assert done.error_line.startswith("decodescope: regression: ")
    assert "launch calls" in done.out
    assert decodescope("diff", EAGER, COMPILED, "--fail-on-regression", "5").code == 0


@pytest.mark.parametrize(("target", "ending"), [("html", "</html>"), ("csv", "")])
def test_exports(decodescope: Command, tmp_path: Path, target: str, ending: str) -> None:
    path = tmp_path / f"out.{target}"
    done = decodescope("export", COMPILED, "--to", target, "-o", str(path), "--by", "gap")
    assert (done.code, done.out) == (0, "")
    text = path.read_text()
    assert text.rstrip().endswith(ending)
    assert "graph_internal" in text


def test_ranks_have_a_report_each_and_one_of_all(decodescope: Command, tmp_path: Path) -> None:
    files = [rank_file(tmp_path, 1), rank_file(tmp_path, 0)]
    ranks = msgspec.json.decode(decodescope("analyze", *files, "--json").out, type=RanksReport)
    assert [one.rank for one in ranks.ranks] == [0, 1]
    assert ranks.merged is not None
    assert [device.window_ns for device in ranks.merged.devices] == [50, 51]
    table = decodescope("analyze", *files).out
    assert "2 ranks" in table
    assert "kernel_of_1" in table
    assert "kernel_of_0" in decodescope("analyze", *files, "--format", "csv").out
    page = decodescope("analyze", *files, "--format", "html").out
    assert "kernel_of_0" in page
    assert "all ranks" in page


def test_ranks_without_a_common_clock_are_not_merged(decodescope: Command, tmp_path: Path) -> None:
    files = [rank_file(tmp_path, 0), rank_file(tmp_path, 1, base_ns=2 * 10**18)]
    ranks = msgspec.json.decode(decodescope("analyze", *files, "--json").out, type=RanksReport)
    assert ranks.merged is None
    assert "no_common_clock" in {finding.code for finding in ranks.findings}
    done = decodescope("analyze", *files, "--format", "csv")
    assert done.code == 2
    assert "cannot be merged" in done.error_line


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """`compare` without measuring: two variants whose windows are the bundled recordings."""
    traces = {"eager": Path(EAGER), "compiled": Path(COMPILED)}
    windows = {name: analyze(load(path)).report for name, path in traces.items()}
    runs = runs_of({"eager": [27.0, 28.0, 29.0], "compiled": [655.0, 656.0, 654.0]})
    comparison = compare_runs(runs, windows)

    @contextmanager
    def outcome(request: object, say: object) -> Iterator[compare.CompareOutcome]:
        yield compare.CompareOutcome(comparison, traces)

    monkeypatch.setattr(compare, "compare_variants", outcome)
    return comparison


COMPARE = ("compare", "--variants", "eager,compiled")


def test_compare_writes_json_markdown_and_a_page(
    decodescope: Command, measured: Comparison, tmp_path: Path
) -> None:
    done = decodescope(*COMPARE, "--json", "--out", str(tmp_path))
    assert done.code == 0
    assert msgspec.json.decode(done.out, type=Comparison) == measured
    names = {"comparison.json", "comparison.md", "comparison.html"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert json.loads((tmp_path / "comparison.json").read_bytes()) == json.loads(done.out)
    assert "faster" in (tmp_path / "comparison.md").read_text()
    assert "faster" in decodescope(*COMPARE).out


def baseline(folder: Path, measured: Comparison, **changes: object) -> str:
    path = folder / "old.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(measured, **changes)))
    return str(path)


def test_the_gate_against_a_baseline(
    decodescope: Command, measured: Comparison, tmp_path: Path
) -> None:
    gate = ("--fail-on-regression", "5", "--baseline")
    assert decodescope(*COMPARE, *gate, baseline(tmp_path, measured)).code == 0
    faster = compare_runs(runs_of({"eager": [27.0] * 3, "compiled": [900.0, 901.0, 902.0]}), {})
    done = decodescope(*COMPARE, *gate, baseline(tmp_path, faster), "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert "compiled" in done.error_line
    written = json.loads((tmp_path / "out" / "comparison.json").read_bytes())
    assert len(written["comparison"]["gate"]["failures"]) == 1


def test_a_baseline_that_does_not_fit_is_refused_and_costs_nothing(
    decodescope: Command, measured: Comparison, tmp_path: Path
) -> None:
    gate = ("--fail-on-regression", "5", "--baseline")
    newer = decodescope(*COMPARE, *gate, baseline(tmp_path, measured, schema_version=99))
    assert newer.code == 2
    assert "99" in newer.error_line
    other = [msgspec.structs.replace(run, model="other") for run in measured.runs]
    kept = tmp_path / "kept"
    done = decodescope(
        *COMPARE, *gate, baseline(tmp_path, measured, runs=tuple(other)), "--out", str(kept)
    )
    assert done.code == 2
    assert "other" in done.error_line
    assert (kept / "comparison.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "x.json"), "give both"),
        (("--baseline", "no/such.json", "--fail-on-regression", "5"), "--baseline no/such.json"),
        (("--text", "no/such.txt"), "--text no/such.txt"),
        (("--prompt", "a", "--context", "5"), "--context"),
    ],
)
def test_bad_usage_of_compare(
    decodescope: Command, measured: Comparison, arguments: tuple[str, ...], said: str
) -> None:
    done = decodescope(*COMPARE, *arguments)
    assert done.code == 2
    assert said in done.error_line


def test_one_variant_is_no_comparison(decodescope: Command) -> None:
    done = decodescope("compare", "--variants", "eager", "--model", "tiny", "--device", "cpu")
    assert done.code == 2
    assert "two" in done.error_line
