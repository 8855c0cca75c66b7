"""Reports of Nsight Systems are exported by the `nsys` on the path, once, and nothing is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from decodescope.analyzer import load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.nsys import report_export
from tests.analyzer.readers.test_sources import nsys_export

# Finds the export beside the report; "fail" and "hang" in the report's text do what they say.
FAKE = """#!{python}
import os, pathlib, shutil, sys, time
arguments = sys.argv[1:]
assert arguments[:5] == ["export", "--type", "sqlite", "--force-overwrite", "true"], arguments
assert arguments[5] == "--output", arguments
report, target = pathlib.Path(arguments[7]), pathlib.Path(arguments[6])
with open({log!r}, "a") as log:
    log.write(f"{{os.getpid()}} {{target}}\\n")
text = report.read_text()
if "fail" in text:
    sys.exit("Importer error:\\n  the report is of a newer version\\n")
if "hang" in text:
    target.write_text("half")
    time.sleep(600)
if "nothing" not in text:
    shutil.copy(report.parent / "made.sqlite", target)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, a `nsys` on the path, and an export for it to give."""
    programs, cache = tmp_path / "programs", tmp_path / "cache"
    programs.mkdir()
    fake = programs / "nsys"
    fake.write_text(FAKE.format(python=sys.executable, log=str(tmp_path / "log")))
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    monkeypatch.setattr(report_export, "export_folder", lambda: cache)
    nsys_export(tmp_path / "made.sqlite")
    return cache


def report(tmp_path: Path, text: str = "report", name: str = "a b.nsys-rep") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def exports(tmp_path: Path) -> int:
    log = tmp_path / "log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def test_a_report_is_exported_once(cache: Path, tmp_path: Path) -> None:
    path = report(tmp_path)
    trace = load(path)
    assert (trace.source.path, trace.source.format) == (str(path), "nsys-sqlite")
    assert len(trace.ops) == len(load(tmp_path / "made.sqlite").ops) == 40
    assert len(load(path).ops) == 40
    assert exports(tmp_path) == 1
    assert [one.suffix for one in cache.iterdir()] == [".sqlite"]
    path.write_text("another report")
    load(path)
    assert exports(tmp_path) == 2


def test_the_last_four_are_kept(cache: Path, tmp_path: Path) -> None:
    for number in range(6):
        load(report(tmp_path, f"report {number}"))
        if number == 3:
            # Used again, so it is not the oldest.
            load(report(tmp_path, "report 0"))
    assert len(list(cache.iterdir())) == 4
    made = exports(tmp_path)
    load(report(tmp_path, "report 0"))
    assert exports(tmp_path) == made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("fail", "nsys ends with code 1: the report is of a newer version"),
        ("nothing", "nsys export made no file"),
    ],
)
def test_an_export_that_fails_is_one_line(
    text: str, says: str, cache: Path, tmp_path: Path
) -> None:
    path = report(tmp_path, text)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)
    assert list(cache.iterdir()) == []


def test_without_nsys_the_line_says_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(report_export, "export_folder", lambda: tmp_path / "cache")
    path = report(tmp_path)
    with pytest.raises(TraceError, match=r"nsys is not on the path.*nsys export --type sqlite"):
        load(path)


def test_a_cache_that_cannot_be_written_is_one_line(cache: Path, tmp_path: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(TraceError, match=r"cannot be kept.*nsys export --type sqlite"):
        load(report(tmp_path))


def test_a_time_limit_ends_it_and_leaves_nothing(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_export, "_MOST_S", 0.4)
    with pytest.raises(TraceError, match=r"nsys took over 0 minutes; run it yourself: .*nsys exp"):
        load(report(tmp_path, "hang"))
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_it_ends_with_the_process_that_waits_for_it(
    number: signal.Signals, cache: Path, tmp_path: Path
) -> None:
    path = report(tmp_path, "hang")
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from decodescope.analyzer import load\n"
        "from decodescope.analyzer.readers.nsys import report_export\n"
        "report_export.export_folder = lambda: Path(sys.argv[2])\n"
        "load(sys.argv[1])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(cache)], stderr=subprocess.PIPE
    ) as process:
        until = time.monotonic() + 60
        while not (cache.exists() and list(cache.glob("*/export.sqlite"))):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    pid = int((tmp_path / "log").read_text().split()[0])
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)
    if number == signal.SIGINT:
        assert b"KeyboardInterrupt" in said
    else:
        # The next one removes what a killed process left.
        path.write_text("report")
        load(path)
    assert [one.suffix for one in cache.iterdir() if one.is_dir()] == []
