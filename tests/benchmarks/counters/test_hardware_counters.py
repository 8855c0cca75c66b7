"""A step is traced and counted in two processes, and its figures add up."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.counters import counted_step, hardware_counters
from benchmarks.counters.counted_step import (
    MIDDLE_STEP,
    POSITION,
    PROBE_CYCLES,
    SPIN_CYCLES,
    WINDOW,
    claimed_bytes,
    count_step,
)
from benchmarks.counters.counter_check import NOT_EXPLAINED, WITHIN, Joined, joined, traced_step
from benchmarks.counters.counter_figures import figures, tables
from benchmarks.counters.hardware_counters import command, measure, without_overlap
from benchmarks.harness.records import ROOT
from decodescope.analyzer.errors import InputError
from decodescope.variants.model.workload import DecodeWorkload
from tests.benchmarks.counters.counter_sides import (
    KERNELS,
    fake_ncu,
    in_every_step,
    ncu_log,
    sides,
    write_trace,
)
from tests.helpers import fused_steps
from tests.helpers.rich_report import text_of


def test_a_variant_adds_up_its_kernels() -> None:
    trace, counters = sides()
    both = joined(trace, in_every_step(counters), None)
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
        (WITHIN, 1, 500),
        ("interval", 1, 1_000),
    ]
    assert (found.kernels_with_claim, found.claimed_bytes, found.dram_bytes) == (1, 1_000, 1_010)
    shown = text_of(tables([found]), width=140)
    assert "fused-pdl" in shown
    assert "96.2 %" in shown
    assert "1.00 µs" in shown
    assert "2.000 to 1.998 GHz" in shown


def test_a_variant_without_claims_has_no_bytes() -> None:
    trace, counters = sides()
    found = figures("eager", "eager", joined(trace[1:], in_every_step(counters[1:]), None), 0)
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


def test_the_counted_steps_are_the_traced_ones(monkeypatch: pytest.MonkeyPatch) -> None:
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
    traced_from = counted_step.CONTEXT + counted_step.WARM_UP_STEPS + WINDOW.warm + WINDOW.lead
    probes = [f"{cycles} cycles" for cycles in PROBE_CYCLES]
    steps = [[traced_from + step, *probes] for step in range(WINDOW.steps)]
    assert counted == [one for step in steps for one in step]
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
    trace, counters = sides()
    both: Joined = joined(trace, in_every_step(counters), None)

    def found(model: str, variant: str, ncu: Path, folder: Path) -> Any:
        assert folder.is_dir()
        if variant == "compiled":
            raise InputError("kernel 7 is another")
        return figures(variant, variant, both, 0)

    monkeypatch.setattr(hardware_counters, "require_cuda", lambda command: None)
    monkeypatch.setattr(hardware_counters, "find_ncu", lambda: fake_ncu(tmp_path, ""))
    monkeypatch.setattr(hardware_counters, "measure", found)
    target = tmp_path / "record.json"
    assert command(["-o", str(target)], standalone_mode=False) == 2
    assert "compiled: kernel 7 is another" in capsys.readouterr().err
    record = json.loads(target.read_text())
    assert str(tmp_path) not in record["command"]
    eager, fused, compiled = record["variants"]
    assert compiled["refused"] == "kernel 7 is another"
    row = dict(zip(record["columns"], eager["joined"]["rows"][0], strict=True))
    assert (row["trace_ns"], row["ncu_ns"], row["why"]) == (50_000, 50_500, WITHIN)
    assert fused["variant"] == "fused"


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
        (NOT_EXPLAINED, 1),
        ("background", 1),
        (WITHIN, 1),
    ]
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[-4:] == ["--model", "a-model", "--variant", "fused-pdl"]


@pytest.mark.gpu
def test_a_real_step_has_one_claim_for_each_kernel(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "benchmarks.counters.counted_step", "--model", "tiny"]
    command = [*program, "--variant", "fused-pdl", "--trace", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    found = traced_step(tmp_path / "trace.json")
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert len(found.kernels) == len(claims) + len(PROBE_CYCLES)
    assert all(one.grid and one.block for one in found.kernels)
    assert "spin_kernel" in found.kernels[-1].name
    assert "spin_kernel" not in found.kernels[-1 - len(PROBE_CYCLES)].name
    assert 0.5e9 < SPIN_CYCLES * 1e9 / found.kernels[-1].median_ns < 3e9
