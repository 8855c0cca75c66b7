"""Nsight Compute's counters of the kernels that a program launches while its profiler is on.

`count` runs a program under `ncu`. Kernels run one by one; clocks and caches stay as they are. The
metrics are few, so that one pass over a kernel has all of them: a second pass would find in L2 what
the first has read. ncu's table says how many passes it took.
"""

import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from benchmarks.harness.records import ROOT
from decodescope.analyzer.errors import InputError, MissingRequirement, process_end
from decodescope.analyzer.io.child_processes import running

Extent = tuple[int, int, int]

DURATION, CYCLES = "gpu__time_duration.sum", "sm__cycles_elapsed.avg"
# Cycles with a warp on an SM, of the SM with most.
BUSY = "sm__cycles_active.max"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
# Sectors of 32 bytes that the SMs read from L2 and write to it.
L2_SECTORS = "lts__t_sectors_srcunit_tex.sum"
METRICS = (DURATION, READ, WRITTEN, L2_SECTORS, CYCLES, BUSY)
# ncu adds it to every table.
_PASSES = "profiler__replayer_passes"
SECTOR_BYTES = 32

_DEFAULT_PATH = Path("/usr/local/cuda/bin/ncu")
_OPTIONS = {
    "--metrics": ",".join(METRICS),
    "--page": "raw",
    "--print-units": "base",
    "--print-kernel-base": "function",
    "--profile-from-start": "off",
    "--target-processes": "application-only",
    "--replay-mode": "kernel",
    "--graph-profiling": "node",
    "--clock-control": "none",
    "--cache-control": "none",
}
_UNITS = {
    "ns": 1.0,
    "nsecond": 1.0,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "s": 1e9,
    "second": 1e9,
    "byte": 1.0,
    "kbyte": 1e3,
    "mbyte": 1e6,
    "gbyte": 1e9,
    "sector": 1.0,
    "cycle": 1.0,
    "pass": 1.0,
    "": 1.0,
}
_ERROR = re.compile(r"^==ERROR== (.+?)\s*$", re.MULTILINE)
_PERMISSION = "ERR_NVGPUCTRPERM"


class Counted(Struct, frozen=True):
    """One launch: the kernel's function without its parameters, its launch shape, and counters.

    `busy_ns` is how long warps were on the SM that was busy longest, so it is at most the kernel's
    own time; `duration_ns` also holds its launch and a wait. `l2_bytes` is what the SMs read from
    and wrote to L2; `sm_hz` the SM clock, cycles ÷ duration. `passes` is how often ncu ran it.
    """

    function: str
    grid: Extent
    block: Extent
    duration_ns: float
    busy_ns: float
    read_bytes: float
    written_bytes: float
    l2_bytes: float
    sm_hz: float
    passes: int


def find_ncu() -> Path:
    """Where ncu is.

    Raises:
        MissingRequirement: nowhere.
    """
    found = Path(shutil.which("ncu") or _DEFAULT_PATH)
    if not found.is_file():
        raise MissingRequirement(
            f"no ncu on the PATH and none at {_DEFAULT_PATH}; install Nsight Compute"
        )
    return found


def ncu_version(ncu: Path) -> str | None:
    """ncu's version; None if it prints none."""
    done = subprocess.run([str(ncu), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+[\d.]*", done.stdout)
    return found[0] if found else None


def count(ncu: Path, program: Sequence[str], log: Path) -> tuple[Counted, ...]:
    """Every launch of `program`, run in the checkout under ncu, which writes to `log`.

    Raises:
        MissingRequirement: ncu may not or cannot count here, or the program failed.
        InputError: as `read_log`.
    """
    options = [word for option in _OPTIONS.items() for word in option]
    command = [str(ncu), "--csv", *options, "--log-file", str(log), *program]
    with running(command, cwd=ROOT, stdout=sys.stderr, stdin=subprocess.DEVNULL) as process:
        code = process.wait()
    text = log.read_text(errors="replace") if log.is_file() else ""
    if code or _ERROR.search(text):
        sys.stderr.write("".join(f"{line}\n" for line in _messages(text)[-40:]))
        raise MissingRequirement(_failure(text, code))
    return read_log(text)


def read_log(text: str) -> tuple[Counted, ...]:
    """Every launch, in its order, of an ncu log with CSV output of the raw page.

    Raises:
        InputError: it has no table, lacks a metric, or has a unit or figure that is not known.
    """
    table = csv.reader(line for line in text.splitlines() if line.startswith('"'))
    header = next(table, None)
    if header is None:
        raise InputError("ncu counted no kernel: its log has no table; was the profiler started?")
    missing = {*METRICS, _PASSES, "Kernel Name", "Grid Size", "Block Size"} - {*header}
    if missing:
        raise InputError(f"ncu's table lacks {', '.join(sorted(missing))}; this ncu may be too old")
    units = dict(zip(header, next(table, ()), strict=False))
    scales = {name: _scale(name, units.get(name, "")) for name in (*METRICS, _PASSES)}
    return tuple(_counted(dict(zip(header, row, strict=False)), scales) for row in table)


def _counted(row: Mapping[str, str], scales: Mapping[str, float]) -> Counted:
    try:
        figures = {name: _number(row[name]) * scale for name, scale in scales.items()}
        grid, block = _extent(row["Grid Size"]), _extent(row["Block Size"])
    except (KeyError, ValueError) as error:
        name = row.get("Kernel Name", "")
        raise InputError(f"ncu's table: kernel {name!r} has no figure or shape: {error}") from error
    duration_ns = figures[DURATION]
    if not duration_ns > 0:
        raise InputError(f"ncu's table: kernel {row['Kernel Name']!r} took {duration_ns} ns")
    if not figures[CYCLES] > 0:
        raise InputError(
            f"ncu's table: kernel {row['Kernel Name']!r} took {figures[CYCLES]} cycles"
        )
    return Counted(
        row["Kernel Name"],
        grid,
        block,
        duration_ns,
        figures[BUSY] / figures[CYCLES] * duration_ns,
        figures[READ],
        figures[WRITTEN],
        figures[L2_SECTORS] * SECTOR_BYTES,
        figures[CYCLES] * 1e9 / duration_ns,
        int(figures[_PASSES]),
    )


def _number(text: str) -> float:
    """ncu groups digits as the locale says: with commas, as a rule."""
    return float(text.replace(",", ""))


def _extent(text: str) -> Extent:
    x, y, z = map(int, text.strip("() ").split(","))
    return x, y, z


def _scale(metric: str, unit: str) -> float:
    """ns or bytes in `unit`."""
    if unit.lower() not in _UNITS:
        raise InputError(f"ncu's table: {metric} is in {unit!r}, which is not a known unit")
    return _UNITS[unit.lower()]


def _messages(log: str) -> list[str]:
    return [line for line in log.splitlines() if not line.startswith('"')]


def _failure(log: str, code: int) -> str:
    errors: Iterable[str] = _ERROR.findall(log)
    if _PERMISSION in log:
        return (
            f"ncu may not read this GPU's counters ({_PERMISSION}); run as root, or let every user "
            "with the driver's option NVreg_RestrictProfilingToAdminUsers=0"
        )
    reason = next(iter(errors), None)
    if reason is not None:
        return f"ncu cannot count here: {reason}"
    return f"ncu, or the program under it, {process_end(code)}; its output is above"
