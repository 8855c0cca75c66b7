"""Logs of ncu, traces and both sides of a step, for the tests of the counters' check."""

import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.counters.counted_step import EMPTY_PROBES, SPIN_CYCLES, WINDOW
from benchmarks.counters.counter_check import CountedKernel, Traced, counted_kernels
from benchmarks.counters.ncu_report import Counted
from tests.helpers.kineto_events import Event, call, document, op, span

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","dram__bytes_read.sum","dram__bytes_write.sum",'
    '"gpu__time_duration.sum","lts__t_sectors_srcunit_tex.sum","profiler__replayer_passes",'
    '"sm__cycles_active.max","sm__cycles_elapsed.avg"\n'
)


UNITS = '"","","","","","","","","","","","byte","byte","ns","sector","pass","cycle","cycle"\n'


PROGRESS = """\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==PROF== Profiling "gemv" - 0: 0%....50%....100%
==PROF== Disconnected from process 4242
"""


ROWS = (
    '"0","4242","python3.12","127.0.0.1","gemv","1","7","(128, 1, 1)","(2048, 1, 1)","0","9.0",'
    '"16,777,216","1,024","5,120","525,000.5","1","6,912","9,216"\n'
    '"1","4242","python3.12","127.0.0.1","vectorized_elementwise_kernel","1","7","(64, 2, 1)",'
    '"(4, 1, 3)","0","9.0","0","0","1984","128","2","992","3968"\n'
)


LOG = PROGRESS + HEADER + UNITS + ROWS


def fake_ncu(folder: Path, log: str, code: int = 0) -> Path:
    """An executable that keeps its arguments and writes `log` where --log-file says."""
    path = folder / "ncu"
    path.write_text(
        f"#!{sys.executable}\n"
        "import json, pathlib, sys\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "(folder / 'arguments.json').write_text(json.dumps(sys.argv[1:]))\n"
        "log = sys.argv[sys.argv.index('--log-file') + 1]\n"
        f"pathlib.Path(log).write_text({log!r})\n"
        f"sys.exit({code})\n"
    )
    path.chmod(0o755)
    return path


KERNELS = (("gemv", 5_000), ("void add<4>(int)", 2_000), ("gemv", 5_100))


def step_events(step: int, kernels: Sequence[tuple[str, int]], first: int) -> list[Event]:
    """One step that launches `kernels`, each with its ns, and copies something."""
    at = 1_000_000 * step
    events = [span(at, at + 100_000, "decode_step")]
    for number, (name, length) in enumerate(kernels):
        start, id = at + 10_000 * (number + 1), first + number
        events.append(call(at + 100 * number, at + 100 * number + 50, id))
        shape = {"grid": [number + 1, 2, 1], "block": [64, 1, 1]}
        events.append(op(start, start + length, id, name=name, **shape))
    last = first + len(kernels)
    events.append(call(at + 90_000, at + 90_050, last, name="cudaMemcpyAsync"))
    events.append(op(at + 90_100, at + 90_200, last, name="Memcpy HtoD", cat="gpu_memcpy"))
    return events


def write_trace(path: Path, *steps: Sequence[tuple[str, int]]) -> Path:
    events: list[Event] = []
    for number, kernels in enumerate(steps):
        events += step_events(number, kernels, len(events) + 1)
    path.write_bytes(document(events))
    return path


def traced(name: str, *ns: int, grid: int = 1, moved: int | None = None) -> Traced:
    return Traced(name, (grid, 1, 1), (64, 1, 1), ns, 700, moved)


def counted(
    function: str,
    ns: float,
    *,
    grid: int = 1,
    busy: float = 0,
    read: float = 0,
    written: float = 0,
    l2: float = 0,
) -> Counted:
    return Counted(function, (grid, 1, 1), (64, 1, 1), ns, busy, read, written, l2, 2e9, 1)


def probe_sides(offset_ns: int = 1_000) -> tuple[list[Traced], list[Counted]]:
    """The probes at 2 GHz, on both sides."""
    trace_ns = [*(1_200,) * EMPTY_PROBES, SPIN_CYCLES // 2]
    name = "at::cuda::(anonymous namespace)::spin_kernel(long)"
    return (
        [traced(name, ns, ns, ns) for ns in trace_ns],
        [counted("spin_kernel", ns + offset_ns, read=500) for ns in trace_ns],
    )


def sides() -> tuple[list[Traced], list[Counted]]:
    probes, counted_probes = probe_sides()
    trace = [traced("void ns::gemv<4>(int)", 50_000, 50_400, 49_600, moved=1_000, grid=3)]
    trace += [traced("add", 2_000, 2_000, 2_000)]
    counters = [counted("gemv", 50_500, grid=3, read=900, written=110, l2=1_100)]
    counters += [counted("add", 3_000, read=77)]
    return [*trace, *probes], [*counters, *counted_probes]


def in_every_step(counters: Sequence[Counted]) -> tuple[CountedKernel, ...]:
    """Kernels that count the same in each step."""
    return counted_kernels([*counters] * WINDOW.steps)


def ncu_log(kernels: Sequence[Traced]) -> str:
    """A log of all steps, in which every kernel takes 1 µs more than in the trace."""
    rows = [
        f'"{id}","1","p","h","{one.name.partition("(")[0].split("::")[-1]}","1","7","{one.block}",'
        f'"{one.grid}","0","9.0","10","0","{one.ns[0] + 1_000}","1","1","1000","2000"\n'
        for id, one in enumerate([*kernels] * WINDOW.steps)
    ]
    return PROGRESS + HEADER + UNITS + "".join(rows)
