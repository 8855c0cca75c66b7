"""How a command ends where its output cannot go, and with an error that nobody foresaw."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError, RegressionFound
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.cli import ending
from decodescope.cli.main import main
from decodescope.cli.streams import Messages, standard_streams
from decodescope.tui.app import DecodescopeApp
from tests.helpers.command import Command, Done

COMPILED, EAGER = (str(path) for path in bundled_recordings()[:2])
SMALL = str(Path(__file__).resolve().parents[1] / "data" / "cpu_two_blocks.json.gz")
CLOSED = "decodescope: stdout: cannot be written (Bad file descriptor)"
FULL = "decodescope: stdout: cannot be written (No space left on device)"
TOO_LARGE = "decodescope: stdout: cannot be written (File too large)"


def shell(script: str, folder: Path, **environment: str) -> Done:
    """A bash script that runs the command as `decodescope`."""
    done = subprocess.run(
        ["bash", "-c", f'decodescope() {{ "{sys.executable}" -m decodescope "$@"; }}\n{script}'],
        capture_output=True,
        check=False,
        cwd=folder,
        env={**os.environ, **environment},
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("rest", "to", "line"),
    [
        (f"analyze {SMALL} --json", "> /dev/full", FULL),
        (f"analyze {SMALL} --json", ">&-", CLOSED),
        (f"analyze {SMALL}", "> /dev/full", FULL),
        (f"analyze {SMALL}", ">&-", CLOSED),
        (f"analyze {SMALL}", "> small", TOO_LARGE),
        ("--help", "> /dev/full", FULL),
        ("--help", ">&-", CLOSED),
        ("--help", ">&- 2>&-", ""),
        ("--help", "> /dev/full 2> /dev/full", ""),
    ],
)
def test_stdout_that_takes_nothing_is_one_line(
    rest: str, to: str, line: str, tmp_path: Path
) -> None:
    done = shell(f"ulimit -f 1; decodescope {rest} {to}", tmp_path)
    assert done == Done(2, "", f"{line}\n" if line else "")


@pytest.mark.parametrize("options", ["--json", "--format html", "--format csv", ""])
def test_a_reader_that_has_enough_ends_the_command_quietly(options: str, tmp_path: Path) -> None:
    script = f"decodescope analyze {EAGER} {options} | true; exit ${{PIPESTATUS[0]}}"
    assert shell(script, tmp_path) == Done(141, "", "")


def test_a_cut_off_gate_does_not_pass(tmp_path: Path) -> None:
    save = f"decodescope baseline save main {EAGER}"
    gate = f"decodescope gate --baseline main {EAGER}"
    assert shell(f"set -o pipefail; {save} && {gate} | true", tmp_path).code == 141


def test_closed_stdin_and_stderr_cost_no_data(tmp_path: Path) -> None:
    script = f"decodescope export {EAGER} --to csv -o out.csv <&- >&- 2>&-"
    assert shell(script, tmp_path).code == 0
    assert (tmp_path / "out.csv").read_text().startswith("name,")


def test_a_file_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    done = shell(f"ulimit -f 1; decodescope export {EAGER} --to html -o page.html", tmp_path)
    assert (done.code, done.only_line) == (
        2,
        "decodescope: page.html: cannot be written (File too large)",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_without_utf8_gets_ascii(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f"decodescope analyze {EAGER}; decodescope models", tmp_path, **plain)
    assert (done.code, done.err) == (0, "")
    assert done.out.isascii()
    assert "ms" in done.out
    assert " us " in done.out
    assert "?" not in done.out


def test_a_file_name_that_is_no_text(tmp_path: Path, decodescope: Command) -> None:
    name = os.fsdecode(b"no\xfftext.json.gz")
    (tmp_path / name).symlink_to(SMALL)
    for options in (["--json"], ["--format", "html"], ["--format", "csv"], []):
        done = decodescope("analyze", str(tmp_path / name), *options)
        assert (done.code, done.err) == (0, "")
    diff = r"decodescope diff $'no\xfftext.json.gz' $'no\xfftext.json.gz' --out out --json"
    assert '"no?text.json.gz"' in shell(diff, tmp_path).out
    assert len(list((tmp_path / "out").iterdir())) == 3
    line = shell(r"decodescope analyze $'\xff'", tmp_path).only_line
    assert line.startswith(r"decodescope: \xff: ")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyError("a\nb"), 70, "KeyError: 'a\\nb'; this is a fault of decodescope: please report"),
        (RecursionError("too deep"), 70, "RecursionError: too deep; this is a fault"),
        (MemoryError(), 3, "out of memory; "),
        (OSError(28, "", "/tmp/x"), 3, "/tmp/x: No space left on device; free some"),
        (OSError(36, "", "xxx"), 2, "xxx: File name too long; name another file"),
        (PermissionError(13, "no", "/tmp/x"), 70, "PermissionError: "),
        (RegressionFound("slower"), 1, "slower"),
        (InputError("bad"), 2, "bad"),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_each_error_has_its_code_and_debug_keeps_it(
    error: Exception,
    code: int,
    line: str,
    debug: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("decodescope.variants.listings.models_table", fail)
    monkeypatch.setattr(sys, "argv", ["decodescope", "models", *["--debug"] * debug])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code
    *before, last = capsys.readouterr().err.splitlines()
    assert last.startswith(f"decodescope: {line}")
    assert ("Traceback (most recent call last):" in before) == debug
    assert bool(before) == debug
    assert ("--debug" in last) == (code == 70 and not debug)


def test_debug_after_two_dashes_is_an_argument(decodescope: Command) -> None:
    assert decodescope("analyze", "--", "--debug").only_line.startswith("decodescope: --debug: ")


def test_an_interrupt_ends_with_130_and_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        ending.end_with(interrupted, debug=True)
    assert end.value.code == 130
    assert capsys.readouterr().err == ""


def test_streams_of_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    with standard_streams():
        assert isinstance(sys.stderr, Messages)
        assert (sys.stdout, sys.stderr.styled) == before
    assert (sys.stdout, sys.stderr) == before


async def test_an_error_in_the_app_is_left_to_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from decodescope.tui.model.sources import source_for

    async def fail(*_: object) -> None:
        raise KeyError("unforeseen")

    monkeypatch.setattr("decodescope.tui.link.replay.ReplayLink.receive", fail)
    app = DecodescopeApp(source_for(Path(EAGER)), folder=tmp_path)
    await app.run_async(headless=True)
    assert isinstance(app.crash, KeyError)
    assert "Traceback" not in capsys.readouterr().err
