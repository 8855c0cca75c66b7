"""What the scripts share: their record below results/, their tables, and the need for a GPU."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich import box
from rich.table import Table

from decodescope.analyzer.io.child_processes import running
from decodescope.analyzer.io.files import write_json
from decodescope.analyzer.text.formatting import UNKNOWN, percent
from decodescope.variants.machine.environment import environment

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
_Figures = TypeVar("_Figures")


def write_record(path: Path, figures: Mapping[str, Any], command: str = "") -> None:
    """Write `figures` as JSON between the command that measures them again (by default this
    process's) and the environment (by default this machine's)."""
    script = Path(sys.argv[0])
    started = ["python", "-m", f"benchmarks.{script.parent.name}.{script.stem}", *sys.argv[1:]]
    record = {"command": command or shlex.join(started), **figures}
    if "environment" not in record:
        record["environment"] = environment()
    write_json(path, record)


def has_gpu(script: str) -> bool:
    """Whether there is a CUDA device; without one, `script` reports on stderr that it needs one."""
    found = torch.cuda.is_available()
    if not found:
        sys.stderr.write(f"{script}: needs a CUDA device\n")
    return found


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


def figures_table(title: str, *columns: str, names: int = 0) -> Table:
    """An empty table: the first `names` columns hold names, the others right-aligned figures."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)
    for number, column in enumerate(columns):
        is_name = number < names
        table.add_column(column, justify="left" if is_name else "right", no_wrap=is_name)
    return table


def share_cell(share: float | None) -> str:
    """A share as a percentage, or the mark of an unknown figure."""
    return UNKNOWN if share is None else f"{percent(share)} %"
