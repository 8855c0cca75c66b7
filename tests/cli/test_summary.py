"""`analyze --summary`: the answer in at most 30 lines."""

from pathlib import Path

import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.command import Command
from tests.helpers.hostile import FILE, hostile_trace, unsafe
from tests.helpers.kineto_events import DATA, NO_TRACES

TRACES = [path for path in sorted(DATA.glob("*.json.gz")) if path.name not in NO_TRACES]


@pytest.mark.parametrize("path", [*TRACES, bundled_recordings()[1]], ids=lambda path: path.stem)
def test_it_begins_as_the_overview_does(
    decodescope: Command, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    overview = decodescope("analyze", str(path)).out.splitlines()
    monkeypatch.setenv("COLUMNS", "60")
    summary = decodescope("analyze", str(path), "--summary")
    lines = summary.out.splitlines()
    assert (summary.code, summary.err) == (0, "")
    assert 5 < len(lines) <= 30
    assert all(len(line) <= 100 for line in lines)
    shown = [line.rstrip() for line in overview]
    assert lines == shown[: len(lines)]


def test_hostile_names_leave_room_for_the_answer(decodescope: Command, tmp_path: Path) -> None:
    files = [hostile_trace(tmp_path / f"{rank}{FILE}", rank) for rank in range(2)]
    for given in (files[:1], files):
        done = decodescope("analyze", *given, "--summary")
        assert (done.code, done.err, unsafe(done.out)) == (0, "", "")
        assert len(done.out.splitlines()) <= 30
        assert "-bound" in done.out
        assert "\n→ " in done.out


@pytest.mark.parametrize("option", ["--json", "--format csv", "--show gaps"])
def test_it_goes_with_no_other_output(decodescope: Command, option: str) -> None:
    done = decodescope("analyze", str(TRACES[0]), "--summary", *option.split())
    assert done.code == 2
    assert "--summary: " in done.only_line
