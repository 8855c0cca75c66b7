"""What ncu's log says is read exactly, joined one by one, and explained by figures only."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import counted_step, hardware_counters
from benchmarks.common import ROOT
from benchmarks.counted_step import (
    EMPTY_PROBES,
    MIDDLE_STEP,
    POSITION,
    PROBE_CYCLES,
    SPIN_CYCLES,
    WINDOW,
    claimed_bytes,
    count_step,
)
from benchmarks.counter_check import (
    NOT_EXPLAINED,
    SLOWER,
    WITHIN,
    Joined,
    Probes,
    Traced,
    joined,
    traced_step,
    why_bytes,
    why_time,
)
from benchmarks.counter_figures import figures, tables
from benchmarks.hardware_counters import main, measure, without_overlap
from benchmarks.ncu_report import METRICS, Counted, count, find_ncu, read_log
from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.variants.model.workload import DecodeWorkload
from tests.helpers import fused_steps
from tests.helpers.kineto_events import Event, call, document, op, span
from tests.helpers.rich_report import text_of

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


def test_a_log_gives_every_launch_in_base_units() -> None:
    gemv, other = read_log(LOG)
    assert gemv == Counted(
        "gemv", (2048, 1, 1), (128, 1, 1), 5120, 3840, 16_777_216, 1024, 525_000.5 * 32, 1.8e9, 1
    )
    assert (other.function, other.grid, other.block) == (
        "vectorized_elementwise_kernel", (4, 1, 3), (64, 2, 1),
    )  # fmt: skip
    assert (other.busy_ns, other.sm_hz, other.passes) == (496, 2e9, 2)


def test_other_units_are_converted() -> None:
    units = UNITS.replace('"ns"', '"usecond"').replace('"byte","byte"', '"Mbyte","Kbyte"')
    gemv = read_log(HEADER + units + ROWS)[0]
    assert (gemv.duration_ns, gemv.read_bytes) == (5_120_000, 16_777_216e6)
    assert gemv.written_bytes == 1_024e3


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("", "counted no kernel"),
        (PROGRESS + "==WARNING== No kernels were profiled.\n", "counted no kernel"),
        (LOG.replace("dram__bytes_read.sum", "other"), r"lacks dram__bytes_read\.sum"),
        (LOG.replace("profiler__replayer_passes", "other"), "lacks profiler__replayer_passes"),
        (LOG.replace('"9,216"', '"0"'), r"'gemv' took 0\.0 cycles"),
        (LOG.replace('"ns"', '"fortnight"'), "'fortnight'"),
        (LOG.replace('"5,120"', '"n/a"'), "'gemv' has no figure"),
        (LOG.replace('"5,120"', '"0"'), "'gemv' took 0"),
        (LOG.replace('"5,120"', '"nan"'), "'gemv' took nan"),
        (LOG.replace('"(2048, 1, 1)"', '"2048"'), "'gemv' has no figure or shape"),
        (LOG[:-40], "'vectorized_elementwise_kernel' has no figure"),
    ],
)
def test_a_broken_log_is_one_line(log: str, line: str) -> None:
    with pytest.raises(InputError, match=line):
        read_log(log)


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


def test_a_program_is_counted_as_it_runs_elsewhere(tmp_path: Path) -> None:
    ncu = fake_ncu(tmp_path, LOG)
    assert count(ncu, ["program", "--option"], tmp_path / "log.csv") == read_log(LOG)
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[-2:] == ["program", "--option"]
    options = dict(zip(arguments[1:-2:2], arguments[2:-2:2], strict=True))
    assert options["--clock-control"] == options["--cache-control"] == "none"
    assert options["--metrics"] == ",".join(METRICS)
    assert options["--profile-from-start"] == "off"
    assert options["--graph-profiling"] == "node"


@pytest.mark.parametrize(
    ("log", "code", "line"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
            "Performance Counters on the target device 0.\n" + LOG,
            0,
            "may not read this GPU's counters",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", 0, "LibraryNotLoaded"),
        ("==ERROR== Failed to find metric dram__x\n==ERROR== second\n", 1, "find metric dram__x"),
        ("==PROF== Connected to process 1\n", 3, "ended with exit code 3"),
        ("", 255, "ended with exit code 255"),
    ],
)
def test_ncu_that_cannot_count_is_a_missing_requirement(
    log: str, code: int, line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MissingRequirement, match=line) as error:
        count(fake_ncu(tmp_path, log, code), ["program"], tmp_path / "log.csv")
    assert "\n" not in str(error.value)
    messages = [one for one in log.splitlines() if one.startswith("==")]
    assert capfd.readouterr().err.splitlines() == messages


def test_without_ncu_a_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("benchmarks.ncu_report._DEFAULT_PATH", tmp_path / "ncu")
    with pytest.raises(MissingRequirement, match="no ncu on the PATH"):
        find_ncu()


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


def test_a_traced_kernel_has_its_time_in_every_step(tmp_path: Path) -> None:
    steps = [[(name, ns + 100 * step) for name, ns in KERNELS] for step in range(WINDOW.steps)]
    found = traced_step(write_trace(tmp_path / "trace.json", *steps))
    assert found.copies == 1
    assert [one.name for one in found.kernels] == [name for name, _ in KERNELS]
    assert found.kernels[1].ns == (2_000, 2_100, 2_200)
    assert found.kernels[1].grid == (2, 2, 1)
    assert found.kernels[1].block == (64, 1, 1)
    assert found.kernels[1].bytes is None


def test_a_traced_kernel_knows_how_long_the_gpu_was_idle(tmp_path: Path) -> None:
    found = traced_step(write_trace(tmp_path / "trace.json", *[KERNELS] * WINDOW.steps))
    # The step's first operation starts 10,000 after the step does, its copy ends at 90,200.
    first, second, third = (one.idle_before_ns for one in found.kernels)
    assert (second, third) == (10_000 - KERNELS[0][1], 10_000 - KERNELS[1][1])
    assert first == 1_000_000 + 10_000 - 90_200


def test_steps_with_different_kernels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"different kernels \(3, 3, 2 of them\)"):
        traced_step(write_trace(tmp_path / "a.json", KERNELS, KERNELS, KERNELS[:2]))
    with pytest.raises(InputError, match="has 2 steps, not 3"):
        traced_step(write_trace(tmp_path / "b.json", KERNELS, KERNELS))


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


def test_kernels_are_joined_one_by_one() -> None:
    found = joined(*sides(), None)
    assert found.names == ("void ns::gemv<4>(int)", "add")
    gemv, add = found.rows
    assert (gemv.trace_ns, gemv.ncu_ns, gemv.why) == (50_000, 50_500, WITHIN)
    assert (gemv.claimed_bytes, gemv.dram_bytes, gemv.why_bytes) == (1_000, 1_010, WITHIN)
    assert (add.trace_over_ncu, add.why) == (2 / 3, "interval")
    assert (add.claimed_bytes, add.why_bytes) == (None, None)
    assert found.probes.offset_ns == 1_000
    assert found.probes.offset_spread_ns == 0
    assert found.probes.trace_sm_hz == 2e9
    assert found.probes.background_bytes == 500


def test_claims_of_the_step_go_before_those_of_the_trace() -> None:
    assert [row.claimed_bytes for row in joined(*sides(), [7, 8]).rows] == [7, 8]
    with pytest.raises(InputError, match="claims bytes of 3 kernels, but ran 2"):
        joined(*sides(), [7, 8, 9])


def test_sides_that_differ_are_refused_with_the_first_difference() -> None:
    trace, counters = sides()
    with pytest.raises(InputError, match=r"kernel 1 is 'void ns::gemv.* but 'add'"):
        joined(trace, [counters[1], counters[0], *counters[2:]], None)
    with pytest.raises(InputError, match=r"kernel 1 .*\(3, 1, 1\).* 'gemv' \(9, 1, 1\)"):
        joined(trace, [counted("gemv", 50_500, grid=9), *counters[1:]], None)
    with pytest.raises(InputError, match="the trace has 23 kernels a step, ncu counted 22"):
        joined(trace, counters[:-1], None)
    with pytest.raises(InputError, match="does not end with 21 probes"):
        joined(trace[:-1], counters[:-1], None)


PROBES = Probes((), (), 1_000, 40, 2e9, 1e9, 600)


@pytest.mark.parametrize(
    ("trace_ns", "ncu_ns", "why"),
    [
        ((50_000,), 51_000, WITHIN),
        ((50_000,), 49_000, WITHIN),
        ((49_000, 50_000, 54_000), 55_000, "steps"),
        ((5_000,), 6_000, "interval"),
        ((1_500,), 2_539, "interval"),
        ((1_500,), 2_541, "launch and wait"),
        ((5_000,), 11_000, "clock"),
        ((5_000,), 8_000, "launch and wait"),
        ((50_000,), 30_000, NOT_EXPLAINED),
    ],
)
def test_a_duration_is_explained_only_by_figures(
    trace_ns: tuple[int, ...], ncu_ns: float, why: str
) -> None:
    assert why_time(traced("k", *trace_ns), counted("k", ncu_ns), PROBES) == why


@pytest.mark.parametrize(
    ("busy_ns", "why"),
    [(4_900, "launch and wait"), (5_100, "launch and wait"), (5_110, SLOWER), (8_000, SLOWER)],
)
def test_a_kernel_that_keeps_an_sm_busy_for_longer_is_slower(busy_ns: float, why: str) -> None:
    found = counted("k", 8_000, busy=busy_ns)
    assert why_time(traced("k", 5_000), found, PROBES) == why
    assert why_time(traced("k", 7_000), found, PROBES) == "interval", "busy or not"


@given(
    st.lists(st.integers(1_000, 1_000_000), min_size=1, max_size=3),
    st.floats(1, 5e6, allow_nan=False),
)
def test_what_is_within_the_bound_never_needs_a_reason(ns: list[int], ncu_ns: float) -> None:
    one = traced("k", *ns)
    why = why_time(one, counted("k", ncu_ns), PROBES)
    assert (why == WITHIN) == (abs(ncu_ns - one.median_ns) <= 0.02 * one.median_ns)


@pytest.mark.parametrize(
    ("claimed", "read", "written", "l2", "why"),
    [
        (100_000, 99_000, 0, 0, WITHIN),
        (100_000, 103_000, 42_001, 106_000, NOT_EXPLAINED),
        (1_000, 1_500, 0, 0, "background"),
        (100_000, 40_000, 0, 98_000, "L2"),
        (100_000, 40_000, 0, 97_000, NOT_EXPLAINED),
        (100_000, 101_000, 9_000, 100_000, "written back"),
        (100_000, 120_000, 0, 118_000, NOT_EXPLAINED),
        (260, 30_208, 0, 288, "not data"),
        (260, 30_208, 0, 320, NOT_EXPLAINED),
    ],
)
def test_bytes_are_explained_only_by_counters(
    claimed: int, read: float, written: float, l2: float, why: str
) -> None:
    found = counted("k", 1_000, read=read, written=written, l2=l2)
    assert why_bytes(claimed, found, PROBES) == why


def test_a_variant_adds_up_its_kernels() -> None:
    both = joined(*sides(), None)
    found = figures("fused", "fused-pdl", both, 2)
    assert (found.kernels, found.trace_ns, found.ncu_ns) == (2, 52_000, 53_500)
    assert found.within == pytest.approx(50 / 52)
    assert found.ncu_less_offset_ns == 51_500
    assert found.within_less_offset == 1
    assert found.trace_over_ncu_less_offset.median == pytest.approx((50 / 49.5 + 1) / 2)
    assert found.idle_before_ns.median == 700
    assert (found.joined.passes, found.dram_read_bytes) == (1, 900)
    assert sum(one.share for one in found.reasons) == pytest.approx(1)
    assert [(one.reason, one.kernels, one.difference) for one in found.reasons] == [
        (WITHIN, 1, 500), ("interval", 1, 1_000),
    ]  # fmt: skip
    assert (found.kernels_with_claim, found.claimed_bytes, found.dram_bytes) == (1, 1_000, 1_010)
    shown = text_of(tables([found]), width=140)
    assert "fused-pdl" in shown
    assert "96.2 %" in shown
    assert "1.00 µs" in shown
    assert "2.000 to 1.998 GHz" in shown


def test_a_variant_without_claims_has_no_bytes() -> None:
    trace, counters = sides()
    found = figures("eager", "eager", joined([trace[1], *trace[2:]], counters[1:], None), 0)
    assert (found.claimed_bytes, found.dram_bytes, found.byte_reasons) == (None, None, ())
    assert "interval" in text_of(tables([found]), width=140)


@pytest.mark.parametrize(
    ("variant", "measured"),
    [
        ("eager", "eager"),
        ("compiled", "compiled"),
        ("fused", "fused-pdl"),
        ("fused+graph", "fused+graph-pdl"),
        ("fused-head-pdl", "fused-head-pdl"),
        ("fp8", "fused+graph+fp8_e4m3-pdl"),
    ],
)
def test_kernels_of_a_variant_do_not_overlap(variant: str, measured: str) -> None:
    assert without_overlap(variant) == measured


class CountingStep:
    """Counts what it decodes, and knows whether the profiler was on meanwhile."""

    def __init__(self, log: list[Any]) -> None:
        self.position = 0
        self._log = log

    def prefill(self, ids: object) -> None:
        self.position = counted_step.CONTEXT

    def step(self) -> None:
        self._log.append(self.position)
        self.position += 1


def test_the_counted_step_is_the_middle_traced_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    cuda: Any = torch.cuda
    monkeypatch.setattr(cuda, "synchronize", lambda: None)
    monkeypatch.setattr(cuda, "_sleep", lambda cycles: log.append(f"{cycles} cycles"))
    monkeypatch.setattr(cuda.profiler, "start", lambda: log.append("start"))
    monkeypatch.setattr(cuda.profiler, "stop", lambda: log.append("stop"))
    prepared: Any = SimpleNamespace(prompt=lambda round: None)
    step: Any = CountingStep(log)
    count_step(prepared, step)
    counted = log[log.index("start") + 1 : log.index("stop")]
    assert counted == [POSITION, *(f"{cycles} cycles" for cycles in PROBE_CYCLES)]
    traced_from = counted_step.CONTEXT + counted_step.WARM_UP_STEPS + WINDOW.warm + WINDOW.lead
    assert traced_from + MIDDLE_STEP == POSITION
    assert len(log[: log.index("start")]) > len(PROBE_CYCLES), "the step before has probes too"


def test_a_fused_step_claims_the_bytes_of_each_kernel(device: str) -> None:
    loaded = fused_steps.load_family("mistral", device)
    workload = DecodeWorkload(1, 20, 4, "fp32")
    step = fused_steps.fused(loaded, workload)
    claims = claimed_bytes(step, 20)
    assert claims is not None
    layers = loaded.model.config.num_hidden_layers
    assert len(claims) == 5 * layers + 2
    must_read = step.weight_bytes_read + step.kv_bytes_read(20)
    assert must_read < sum(claims) < 1.2 * must_read
    assert claimed_bytes(fused_steps.fused(loaded, workload, "fused-attention"), 20) is None


def test_a_refused_variant_leaves_the_others_in_the_record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both: Joined = joined(*sides(), None)

    def found(model: str, variant: str, ncu: Path, folder: Path) -> Any:
        assert folder.is_dir()
        if variant == "compiled":
            raise InputError("kernel 7 is another")
        return figures(variant, variant, both, 0)

    monkeypatch.setattr(hardware_counters, "has_gpu", lambda script: True)
    monkeypatch.setattr(hardware_counters, "find_ncu", lambda: fake_ncu(tmp_path, ""))
    monkeypatch.setattr(hardware_counters, "measure", found)
    target = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["hardware_counters", "-o", str(target)])
    assert main() == 2
    assert "compiled: kernel 7 is another" in capsys.readouterr().err
    record = json.loads(target.read_text())
    assert str(tmp_path) not in record["command"]
    eager, fused, compiled = record["variants"]
    assert compiled["refused"] == "kernel 7 is another"
    row = dict(zip(record["columns"], eager["joined"]["rows"][0], strict=True))
    assert (row["trace_ns"], row["ncu_ns"], row["why"]) == (50_000, 50_500, WITHIN)
    assert fused["variant"] == "fused"


def ncu_log(kernels: Sequence[Traced]) -> str:
    """A log in which every kernel takes 1 µs more than in the trace."""
    rows = [
        f'"{id}","1","p","h","{one.name.partition("(")[0].split("::")[-1]}","1","7","{one.block}",'
        f'"{one.grid}","0","9.0","10","0","{one.ns[0] + 1_000}","1","1","1000","2000"\n'
        for id, one in enumerate(kernels)
    ]
    return PROGRESS + HEADER + UNITS + "".join(rows)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_a_variant_is_traced_and_counted_in_two_processes(
    exit_code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernels = [*KERNELS, *(("spin_kernel", 1_200 if not one else 9_000) for one in PROBE_CYCLES)]
    source = write_trace(tmp_path / "source.json", *[kernels] * WINDOW.steps)
    ncu = fake_ncu(tmp_path, ncu_log(traced_step(source).kernels))
    python = tmp_path / "python"
    python.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--trace') + 1])\n"
        f"shutil.copy({str(source)!r}, folder / 'trace.json')\n"
        "(folder / 'claims.json').write_text('[10, 20, 1000000]')\n"
        f"sys.exit({exit_code})\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    folder = tmp_path / "folder"
    folder.mkdir()
    if exit_code:
        with pytest.raises(SystemExit) as end:
            measure("a-model", "fused", ncu, folder)
        assert end.value.code == exit_code
        return
    found = measure("a-model", "fused", ncu, folder)
    assert (found.measured_as, found.kernels, found.copies) == ("fused-pdl", 3, 1)
    assert [(one.reason, one.kernels) for one in found.reasons] == [("interval", 3)]
    assert [(one.reason, one.kernels) for one in found.byte_reasons] == [
        (NOT_EXPLAINED, 1), ("background", 1), (WITHIN, 1),
    ]  # fmt: skip
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[-4:] == ["--model", "a-model", "--variant", "fused-pdl"]


@pytest.mark.gpu
def test_a_real_step_has_one_claim_for_each_kernel(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "benchmarks.counted_step", "--model", "tiny"]
    command = [*program, "--variant", "fused-pdl", "--trace", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    found = traced_step(tmp_path / "trace.json")
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert len(found.kernels) == len(claims) + len(PROBE_CYCLES)
    assert all(one.grid and one.block for one in found.kernels)
    assert "spin_kernel" in found.kernels[-1].name
    assert "spin_kernel" not in found.kernels[-1 - len(PROBE_CYCLES)].name
    assert 0.5e9 < SPIN_CYCLES * 1e9 / found.kernels[-1].median_ns < 3e9
