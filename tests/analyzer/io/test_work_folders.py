"""Temporary folders: removed by their process, or after its death by the next one."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from decodescope.analyzer.io.work_folders import WorkFolder

MAKER = """
import sys, time
from decodescope.analyzer.io.work_folders import WorkFolder
folder = WorkFolder()
(folder.path / "window").mkdir()
(folder.path / "window" / "trace.json").write_text("{}")
print(folder.path, flush=True)
sys.stdin.read()
folder.remove()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def maker():
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def test_a_folder_is_new_and_goes_with_what_is_in_it(place: Path) -> None:
    with WorkFolder() as first, WorkFolder() as second:
        (first / "sub").mkdir()
        (first / "sub" / "file").write_text("x")
        assert first != second
        assert {first, second} == set(place.iterdir())
        assert first.stat().st_mode & 0o077 == 0
    assert list(place.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next(place: Path, maker) -> None:
    made = Path(maker.stdout.readline().strip())
    with WorkFolder() as own:
        assert {made, own} == set(place.iterdir())
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    assert (made / "window" / "trace.json").exists()
    with WorkFolder() as own:
        assert list(place.iterdir()) == [own]


def test_the_folder_of_a_living_process_stays_until_it_ends(place: Path, maker) -> None:
    made = Path(maker.stdout.readline().strip())
    with WorkFolder():
        assert (made / "window" / "trace.json").exists()
    maker.communicate("")
    assert list(place.iterdir()) == []


def test_nothing_of_anyone_else_is_removed(place: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept").write_text("x")
    (place / "decodescope-link.tmp").symlink_to(elsewhere)
    (place / "decodescope-file.tmp").write_text("x")
    (place / "decodescope-traces").mkdir()
    (place / "other.tmp").mkdir()
    before = set(place.iterdir())
    with WorkFolder():
        pass
    assert set(place.iterdir()) == before
    assert (elsewhere / "kept").exists()


def test_a_file_system_without_locks_keeps_what_it_has(place: Path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "no locks")

    (place / "decodescope-abcd1234.tmp").mkdir()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with WorkFolder() as own:
        assert own.is_dir()
    assert [path.name for path in place.iterdir()] == ["decodescope-abcd1234.tmp"]


def test_a_folder_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    monkeypatch,
) -> None:
    real, removed = fcntl.flock, []

    def remove_first(lock: int, how: int) -> None:
        if not removed and not how & fcntl.LOCK_NB:
            removed.append(os.readlink(f"/proc/self/fd/{lock}"))
            os.rmdir(removed[0])
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with WorkFolder() as own:
        assert own.is_dir()
        assert str(own) != removed[0]


def test_threads_that_make_folders_remove_none_of_each_other(place: Path) -> None:
    kept: list[Path] = []

    def make() -> None:
        for _ in range(40):
            kept.append(WorkFolder().path)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(kept)) == 160
    assert set(kept) == set(place.iterdir())
