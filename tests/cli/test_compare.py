"""compare as scripts use it: files, exit codes."""

import json
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.comparison_messages import RoundCompared
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.variants.comparing import command as compare
from decodescope.variants.comparing.command import CompareRequest, Tell
from tests.helpers.command import Command
from tests.helpers.comparison_reports import runs_of

COMPILED, EAGER = bundled_recordings()[:2]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """`compare` without measuring: two variants whose windows are the bundled recordings."""
    traces = {"eager": EAGER, "compiled": COMPILED}
    windows = {name: analyze(load(path)).report for name, path in traces.items()}
    runs = runs_of({"eager": [27.0, 28.0, 29.0], "compiled": [655.0, 656.0, 654.0]})
    comparison = compare_runs(runs, windows)

    monkeypatch.setattr(compare, "compare_variants", lambda request, tell: comparison)
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


def test_each_complete_round_is_in_the_folder_before_the_next_one_ends(
    decodescope: Command,
    measured: Comparison,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def ends_in_a_later_round(request: CompareRequest, tell: Tell) -> Comparison:
        assert request.each_round
        tell(RoundCompared(measured))
        raise DecodescopeError("the machine is taken")

    monkeypatch.setattr(compare, "compare_variants", ends_in_a_later_round)
    done = decodescope(*COMPARE, "--out", str(tmp_path))
    assert (done.code, done.error_line) == (2, "decodescope: the machine is taken")
    (path,) = tmp_path.iterdir()
    assert path.name == "comparison.json"
    assert msgspec.json.decode(path.read_bytes(), type=Comparison) == measured


@pytest.mark.parametrize("options", [(), ("--json",), ("--out", "out")])
def test_what_is_inconclusive_is_one_line_in_every_output(
    decodescope: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    noisy = {"eager": [20.0, 30.0, 28.0], "compiled": [30.0, 20.0, 29.0]}
    now = compare_runs(runs_of(noisy), {})
    monkeypatch.setattr(compare, "compare_variants", lambda request, tell: now)
    done = decodescope(*COMPARE, *options)
    assert done.code == 0
    (line,) = [line for line in done.err.splitlines() if "inconclusive" in line]
    assert line.startswith("inconclusive: compiled against eager: x1.013 (95 %: x")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
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
