"""A thousand attaches to a process leave nothing in it and nothing here."""

import gc
import os
import shutil
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from benchmarks.attach.held import Held
from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import job_processes
from decodescope.attach.kineto.window_config import Timing
from tests.helpers.libkineto import fake_process

QUICK = Timing(poll_s=5.0, lead_s=0.05, refused_s=0.0, silent_s=5.0, trace_s=5.0)
ATTACHES, EVERY = 1000, 100
# An allocator takes memory in steps of megabytes, now and then; what leaks grows all the time. A
# kilobyte an attach would be as much as its trace.
MAX_USUAL_GROWTH_BYTES = EVERY << 10


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.xdist_group("busy")
@pytest.mark.timeout(900)
def test_a_thousand_attaches_leave_nothing(socket_folder: str, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    out.mkdir()
    held: list[tuple[Held, Held]] = []  # by this process, and by the other one
    variables = {"KINETO_ONDEMAND_TRACE_DIR": str(traces)}
    with fake_process(socket_folder, "asks often", **variables) as running:
        # Each configuration is a line that somebody has to read.
        assert running.stdout is not None
        for number in range(1, ATTACHES + 1):
            with KinetoDoor(job_processes([running.pid]), dynolog_port=1, timing=QUICK) as door:
                window = door.window(WindowPlan(out, 1), lambda stage: None)
            running.stdout.readline()
            assert [path.parent for path in window.traces] == [out]
            assert list(traces.iterdir()) == []
            assert os.listdir(socket_folder) == [f"client{running.pid}"]
            shutil.rmtree(out)
            out.mkdir()
            if number % EVERY == 0:
                gc.collect()
                held.append((Held.by(os.getpid()), Held.by(running.pid)))
    for side in zip(*held, strict=True):
        assert len({(one.descriptors, one.threads) for one in side}) == 1
        growth = [after.resident_bytes - before.resident_bytes for before, after in pairwise(side)]
        assert median(growth) < MAX_USUAL_GROWTH_BYTES, growth
