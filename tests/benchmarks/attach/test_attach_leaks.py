"""What is counted of many attaches, on fakes; and that a leak shows."""

import os
from pathlib import Path

import pytest

from benchmarks.attach.attach_leaks import Repeats, Watched, leave_early, read_metrics, started
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.schema.report import ObserverReport
from decodescope.attach.door import CapturedWindow, Door, WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import job_processes
from decodescope.attach.servers.opening import open_servers
from tests.helpers.libkineto import fake_process
from tests.helpers.sockets import socket_folder

__all__ = ["socket_folder"]


class LeakingDoor(Door):
    """Each keeps a descriptor, and leaves a file beside its trace."""

    target = cost = "leaks"

    def __init__(self, folder: Path, kept: list[int]) -> None:
        self._folder, self._kept = folder, kept

    def window(self, plan: WindowPlan, say: object) -> CapturedWindow:
        trace = plan.folder / "trace.json"
        trace.touch()
        return CapturedWindow((trace,), ObserverReport("kineto", self.target))

    def close(self) -> None:
        self._kept.append(os.dup(0))
        (self._folder / f"left-{len(self._kept)}").touch()


def test_a_leak_of_descriptors_and_files_shows(tmp_path: Path) -> None:
    kept: list[int] = []
    folder, out = tmp_path / "sockets", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    (folder / "client").touch()
    target = Watched(
        os.getpid(),
        lambda: LeakingDoor(folder, kept),
        lambda door, plan: None,
        (folder, out),
        frozenset({str(folder / "client")}),
    )
    try:
        found = Repeats(target, every=2).run(attaches=4, windows=3, folder=out)
    finally:
        for descriptor in kept:
            os.close(descriptor)
    samples = found["samples"]
    assert [(one["attaches"], one["windows"]) for one in samples] == [
        (0, 0),
        (2, 0),
        (4, 0),
        (4, 2),
        (4, 3),
    ]
    before = samples[0]["own"]["descriptors"]
    assert [one["own"]["descriptors"] - before for one in samples] == [0, 2, 4, 6, 7]
    assert [len(one["left"]) for one in samples] == [0, 2, 4, 6, 7]
    assert found["failed_windows"] == []


def test_a_window_that_is_left_leaves_nothing(socket_folder: str, tmp_path: Path) -> None:
    with fake_process(socket_folder, KINETO_ONDEMAND_TRACE_DIR=str(tmp_path)) as process:
        own = set(os.listdir(socket_folder))
        with KinetoDoor(job_processes([process.pid]), dynolog_port=1) as door:
            leave_early(door, WindowPlan(tmp_path, 1))
        assert set(os.listdir(socket_folder)) == own
        assert list(tmp_path.iterdir()) == []


def test_a_door_that_opens_no_window_is_no_door_that_was_left(
    socket_folder: str, tmp_path: Path
) -> None:
    with fake_process(socket_folder, KINETO_ONDEMAND_TRACE_DIR=str(tmp_path / "none")) as process:
        door = KinetoDoor(job_processes([process.pid]), dynolog_port=1)
        with pytest.raises(DecodescopeError, match="cannot be written to"):
            leave_early(door, WindowPlan(tmp_path, 1))


def test_the_server_of_recorded_answers_is_read(tmp_path: Path) -> None:
    with (
        started("tests.helpers.servers.recorded", str(tmp_path)) as (_, url),
        open_servers([url], [tmp_path], None, print) as door,
    ):
        assert door.target.startswith("vLLM 0.32.0")
        read_metrics(door, WindowPlan(tmp_path, 1))
