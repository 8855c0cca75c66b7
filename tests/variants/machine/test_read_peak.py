"""A read peak is measured once a month for each GPU, and never read from another GPU's file."""

import os
from datetime import date, timedelta
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.machine import read_peak as subject
from decodescope.variants.machine.read_peak import (
    MAX_AGE_DAYS,
    GpuIdentity,
    ReadPeak,
    cached_peak,
    keep_peak,
)

GPU = GpuIdentity("NVIDIA H200", "1111-22", "580.95.05", "0.1")
DAY = date(2026, 3, 1)
PEAK = ReadPeak(4.69e12, DAY.isoformat())


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_cached_peak_is_found_until_it_is_too_old(tmp_path: Path) -> None:
    keep_peak(GPU, PEAK, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    for days in (0, 1, MAX_AGE_DAYS):
        assert cached_peak(GPU, folder, DAY + timedelta(days)) == PEAK
    for days in (-1, MAX_AGE_DAYS + 1, 4_000):
        assert cached_peak(GPU, folder, DAY + timedelta(days)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "NVIDIA H100"},
        {"uuid": "1111-23"},
        {"driver": None},
        {"decodescope_version": "0.2"},
    ],
)
def test_another_gpu_driver_or_version_measures_again(
    tmp_path: Path, changed: dict[str, str | None]
) -> None:
    keep_peak(GPU, PEAK, tmp_path)
    assert cached_peak(msgspec.structs.replace(GPU, **changed), tmp_path, DAY) is None


def test_gpus_of_one_host_do_not_overwrite_each_other(tmp_path: Path) -> None:
    other = msgspec.structs.replace(GPU, uuid="3333-44")
    keep_peak(GPU, PEAK, tmp_path)
    keep_peak(other, ReadPeak(1e12, DAY.isoformat()), tmp_path)
    assert cached_peak(GPU, tmp_path, DAY) == PEAK
    assert cached_peak(other, tmp_path, DAY) == ReadPeak(1e12, DAY.isoformat())


def test_damaged_files_are_ignored(tmp_path: Path) -> None:
    keep_peak(GPU, PEAK, tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert cached_peak(GPU, tmp_path, DAY) is None
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x40]) + whole[index + 1 :])
        found = cached_peak(GPU, tmp_path, DAY)
        assert found is None or found.bytes_per_s > 0
    path.write_bytes(b'{"new":' + b"[" * 100_000)
    assert cached_peak(GPU, tmp_path, DAY) is None
    path.unlink()
    os.mkfifo(path)
    assert cached_peak(GPU, tmp_path, DAY) is None


@pytest.mark.parametrize("value", ["0", "-4e12", "null", '"fast"', "1e999"])
def test_an_impossible_peak_is_ignored(tmp_path: Path, value: str) -> None:
    keep_peak(GPU, PEAK, tmp_path)
    path = only_file(tmp_path)
    path.write_text(path.read_text().replace("4690000000000.0", value))
    assert value in path.read_text()
    assert cached_peak(GPU, tmp_path, DAY) is None


class Bench:
    """Replaces the GPU, and counts the measurements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.measured = 0
        self.day = DAY
        monkeypatch.setattr(subject, "this_gpu", lambda: GPU)
        monkeypatch.setattr(subject, "cache_folder", lambda: folder)
        monkeypatch.setattr(subject, "today", lambda: self.day)
        monkeypatch.setattr(subject, "measure_read_peak", self.measure)

    def measure(self) -> float:
        self.measured += 1
        return 4e12 + self.measured


def test_a_second_run_does_not_measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bench = Bench(monkeypatch, tmp_path)
    first = subject.read_peak()
    assert first == ReadPeak(4e12 + 1, "2026-03-01")
    assert subject.read_peak() == first
    assert bench.measured == 1
    bench.day += timedelta(MAX_AGE_DAYS + 1)
    assert subject.read_peak() == ReadPeak(4e12 + 2, "2026-04-01")
    assert subject.read_peak() == ReadPeak(4e12 + 2, "2026-04-01")
    assert bench.measured == 2


def test_a_folder_that_cannot_be_written_only_costs_a_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    bench = Bench(monkeypatch, blocked / "cache")
    assert subject.read_peak() is not None
    assert subject.read_peak() is not None
    assert bench.measured == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "not kept" in errors[0]


def test_a_failed_measurement_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Bench(monkeypatch, tmp_path)

    def lacking() -> float:
        raise MissingRequirement("the read peak needs triton, which is not installed")

    monkeypatch.setattr(subject, "measure_read_peak", lacking)
    assert subject.read_peak() is None
    assert "needs triton" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []
