"""open --once and live --once as scripts and CI use them: no terminal, plain text."""

from pathlib import Path

import pytest

from decodescope.analyzer.protocol.messages import State
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.command import Command
from tests.helpers.recordings import hello, record, stats, window

DATA = Path(__file__).resolve().parents[1] / "data"
TRACE = str(DATA / "cpu_two_blocks.json.gz")


def test_a_trace_is_one_screen_of_plain_text(decodescope: Command) -> None:
    done = decodescope("open", TRACE, "--once", "--size", "100x30")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) == 30
    assert "two-blocks" in lines[0]
    assert "\x1b" not in done.out
    assert max(map(len, lines)) <= 100
    assert not any(line.endswith(" ") for line in lines)


def test_a_recording_is_drawn_in_the_default_size(fresh_decodescope: Command) -> None:
    eager = next(path for path in bundled_recordings() if path.stem.endswith("eager"))
    done = fresh_decodescope("open", str(eager), "--once")
    assert (done.code, done.err, len(done.out.splitlines())) == (0, "", 40)
    assert "679" in done.out


@pytest.mark.timeout(60)
def test_a_recording_whose_last_window_is_damaged_is_drawn_with_the_reason(
    decodescope: Command, tmp_path: Path
) -> None:
    whole = next(path for path in bundled_recordings() if path.stem.endswith("fused+graph"))
    recording = read_recording(whole)
    packed = recording.last_packed_traces()[0]
    data = bytearray(whole.read_bytes())
    begin = data.rindex(packed)
    for at in (begin + 20, begin + len(packed) // 2, begin + len(packed) - 30):
        damaged = data.copy()
        damaged[at] ^= 0xFF
        (tmp_path / "damaged.dsrec").write_bytes(damaged)
        done = decodescope("open", str(tmp_path / "damaged.dsrec"), "--once", "--size", "120x40")
        assert (done.code, done.err) == (0, "")
        assert "record it again" in done.out or "memory-bound" in done.out
        assert "1,454 tok/s" in done.out


@pytest.mark.timeout(60)
def test_a_recording_whose_last_window_is_of_another_variant_is_drawn_without_it(
    decodescope: Command, tmp_path: Path
) -> None:
    messages = [hello(), State("running", "fused"), window(tmp_path, 1, "eager"), stats(1)]
    path = record(tmp_path / "run.dsrec", messages)
    done = decodescope("open", str(path), "--once", "--size", "100x30")
    assert (done.code, done.err) == (0, "")
    assert "run.dsrec" in done.out


def test_a_live_run_is_drawn_after_its_first_window(
    fresh_decodescope: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "t").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "t"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    options = ("--model", "tiny", "--device", "cpu", "--context", "16")
    done = fresh_decodescope("live", *options, "--once", "--size", "120x40", cwd=tmp_path)
    assert (done.code, len(done.out.splitlines())) == (0, 40), done.err
    assert "operators" in done.out
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("open", TRACE, "--size", "80x24"), "--size: only with --once"),
        (("open", TRACE, "--once", "--size", "80"), "--size 80: must be columns x rows"),
        (("open", TRACE, "--once", "--size", "0x5"), "--size 0x5: must be columns x rows"),
        (("open", TRACE, "--once", "--page", "none"), "--page none: no such page; choose step, "),
        (("open", TRACE), "open: needs a terminal; without one, add --once"),
        (("open", __file__, "--once"), __file__),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    decodescope: Command, arguments: tuple[str, ...], said: str
) -> None:
    done = decodescope(*arguments)
    assert done.code == 2
    assert said in done.only_line


def test_a_live_run_that_cannot_begin_ends_with_its_reason_and_code(
    fresh_decodescope: Command, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    absent = str(tmp_path / "none")
    done = fresh_decodescope("live", "--model", absent, "--device", "cpu", "--once", cwd=tmp_path)
    assert (done.code, done.out) == (3, "")
    assert absent in done.only_line
