"""--capture on analyze, diff, export and open."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.saved import read_saved
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Attribution, Report
from tests.helpers.command import Command
from tests.helpers.foreign.captures import captured, kernels, model, replays
from tests.helpers.hostile import HOSTILE, unsafe
from tests.helpers.kineto_events import document

NODES = model(3)


@pytest.fixture
def replay(tmp_path: Path) -> str:
    path = tmp_path / "replay.json"
    path.write_bytes(document(replays(kernels(NODES))))
    return str(path)


@pytest.fixture
def capture(tmp_path: Path) -> str:
    path = tmp_path / "capture.json"
    path.write_bytes(document(captured(NODES, around="capture_32_FULL")))
    return str(path)


def test_analyze(decodescope: Command, replay: str, capture: str) -> None:
    done = decodescope("analyze", replay, "--json", "--capture", capture, "--capture", capture)
    report = msgspec.json.decode(done.out, type=Report)
    assert (done.code, report.attribution) == (0, Attribution(len(NODES), 0, 0))
    assert any(row.path.endswith("Model_0/Layer_2/aten::gemm") for row in report.ranges)
    shown = decodescope("analyze", replay, "--show", "ranges", "--capture", capture)
    assert "Layer_" in shown.out


def test_ranks(decodescope: Command, tmp_path: Path, replay: str, capture: str) -> None:
    other = tmp_path / "rank1.json"
    keys = {"distributedInfo": {"rank": 1, "world_size": 2}, "baseTimeNanoseconds": 10}
    other.write_bytes(document(replays(kernels(NODES), at=7), **keys))
    done = decodescope("analyze", replay, str(other), "--json", "--capture", capture)
    report = msgspec.json.decode(done.out, type=RanksReport)
    assert [one.report.attribution for one in report.ranks] == [Attribution(len(NODES), 0, 0)] * 2


def test_diff_uses_it_where_it_fits(
    decodescope: Command, tmp_path: Path, replay: str, capture: str
) -> None:
    other = tmp_path / "other.json"
    other.write_bytes(document(replays(["unknown", "kernels"])))
    out = tmp_path / "out"
    done = decodescope("diff", replay, str(other), "--capture", capture, "--out", str(out))
    assert done.code == 0
    assert "Layer_0" in (out / "diff.html").read_text()
    read_saved((out / "diff.json").read_bytes(), "diff.json")


@pytest.mark.parametrize("target", ["chrome", "html", "csv"])
def test_export(
    decodescope: Command, tmp_path: Path, replay: str, capture: str, target: str
) -> None:
    path = tmp_path / "out.json"
    rows = ("--by", "range") if target == "csv" else ()
    done = decodescope(
        "export", replay, "--to", target, "-o", str(path), "--capture", capture, *rows
    )
    assert done.code == 0
    assert "Layer_1" in path.read_text()


def test_the_capture_is_no_output(decodescope: Command, replay: str, capture: str) -> None:
    done = decodescope("export", replay, "--to", "html", "-o", capture, "--capture", capture)
    assert done.code == 2
    assert "capture.json" in done.only_line


def test_open(decodescope: Command, replay: str, capture: str) -> None:
    done = decodescope(
        "open", replay, "--once", "--page", "ranges", "--size", "120x40", "--capture", capture
    )
    assert (done.code, "Model_0" in done.out) == (0, True)
    recording = str(bundled_recordings()[0])
    done = decodescope("open", recording, "--once", "--capture", capture)
    assert done.code == 2
    assert done.only_line.endswith("leave them out")


def test_a_file_that_is_no_capture_is_one_line(
    decodescope: Command, tmp_path: Path, replay: str
) -> None:
    done = decodescope("analyze", replay, "--capture", replay)
    assert done.code == 2
    assert "no captured launches" in done.only_line
    missing = decodescope("analyze", replay, "--capture", str(tmp_path / "none.json"))
    assert missing.code == 2
    assert "none.json" in missing.only_line
    broken = tmp_path / "broken.json"
    broken.write_bytes(b"{")
    assert decodescope("analyze", replay, "--capture", str(broken)).code == 2


def test_hostile_names_of_a_capture_reach_no_terminal(
    decodescope: Command, tmp_path: Path, replay: str
) -> None:
    nodes = [(name, (HOSTILE, *around), HOSTILE) for name, around, _ in NODES]
    path = tmp_path / "capture.json"
    path.write_bytes(document(captured(nodes)))
    for arguments in (
        ["--show", "ranges"],
        ["--format", "html"],
        ["--format", "csv", "--by", "range"],
    ):
        done = decodescope("analyze", replay, "--capture", str(path), *arguments)
        assert done.code == 0
        assert "x.example" in done.out or "[bold]" in done.out
        assert not unsafe(done.out, r"\x1b\[[0-9;]*m")
    assert (
        "<b>`" not in decodescope("analyze", replay, "--capture", str(path), "--format", "html").out
    )
