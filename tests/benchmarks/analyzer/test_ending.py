"""A signal that ends `python -m benchmarks analyzer` ends the process that it measures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.processes import PATIENCE_S, children, gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")

# What is measured never ends by itself.
START = """
import sys
from benchmarks.__main__ import main
from benchmarks.analyzer import benchmark
benchmark._CHILD = (sys.executable, "-c", "import time; time.sleep(600)")
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_benchmark_ends_the_process_that_it_measures(
    repository: Path, tmp_path: Path, number: int
) -> None:
    (tmp_path / "temporary").mkdir()
    output = tmp_path / "out.json"
    process = subprocess.Popen(
        [sys.executable, "-c", START, "analyzer", "--events", "1000", "-o", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=repository,
        env=os.environ | {"TMPDIR": str(tmp_path / "temporary")},
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (measured := children(process.pid)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 128 + number
    assert all(gone(pid) for pid in measured)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not output.exists()
