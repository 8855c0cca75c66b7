"""Runs commands in processes of their own, and a measurement several times."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.harness.records import ROOT
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.io.child_processes import running

_Figures = TypeVar("_Figures")


def require_cuda(command: str) -> None:
    """Raise `MissingRequirement` if there is no CUDA device for `command`."""
    import torch

    if not torch.cuda.is_available():
        raise MissingRequirement(f"{command}: needs a CUDA device")


def printed_json(
    *arguments: str, program: str = "decodescope", checkout: Path = ROOT, partial: bool = False
) -> dict[str, Any]:
    """The JSON that a command of `program` prints when it runs from `checkout`.

    If the command fails, its exit code ends this script; its line is on stderr. An interruption is
    passed on and ends this script too, but with `partial`, what the command still prints of what it
    has measured is returned first.
    """
    paths = [str(checkout / "src"), os.environ.get("PYTHONPATH", "")]
    with running(
        [sys.executable, "-m", program, *arguments, "--json"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        cwd=checkout,
        # Ctrl-C reaches this script alone: a second signal would end the command at once.
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate()
            failed = process.returncode
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate()
            if not (partial and printed):
                raise
            failed = 0
    if failed:
        raise SystemExit(failed)
    found: dict[str, Any] = json.loads(printed)
    return found


def repeated(times: int, measure: Callable[[], _Figures]) -> list[_Figures]:
    """The figures of every repeat, each shown on stderr as it arrives."""
    runs = []
    for _ in range(times):
        runs.append(measure())
        sys.stderr.write(f"{runs[-1]}\n")
    return runs
