"""The process that `attach` takes windows of: PyTorch on the CPU, with the socket of its daemon in
a folder, so that no other attached process has it too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STEPS = """
import time, torch
x = torch.randn(32, 32)
print("ready", flush=True)
while True:
    with torch.profiler.record_function("decode_step"):
        x @ x
    time.sleep(0.002)
"""


@contextmanager
def target(folder: Path) -> Iterator[int]:
    """The id of a process that takes steps for the length of a block."""
    variables = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(folder)}
    with subprocess.Popen(
        [sys.executable, "-c", _STEPS],
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()
