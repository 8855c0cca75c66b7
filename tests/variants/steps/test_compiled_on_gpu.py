"""Windows on a CUDA device: a graph's reference, the lead, and what calibrates them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from decodescope.analyzer import analyze, load
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.reports.analysis import Analysis
from decodescope.variants.machine import read_peak as read_peaks
from decodescope.variants.machine.read_peak import ReadPeak, this_gpu
from decodescope.variants.measuring.measure import measure_run
from decodescope.variants.measuring.window import Subject, record_reference, try_reference
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.compiled_step import _TracedStep
from tests.helpers.fused_steps import load_family
from tests.helpers.whole_windows import whole_window

pytestmark = [
    pytest.mark.gpu,
    # Warnings of torch.compile's own imports and of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

CONTEXT = 11
NEW_TOKENS = 40

Load = Callable[..., Any]


@pytest.fixture(scope="module")
def session() -> ProfilerSession:
    session = ProfilerSession("cuda")
    session.warm_up()
    return session


def on_gpu(loaded: Any, dtype: torch.dtype) -> Any:
    loaded.model.to("cuda", dtype)
    return loaded


def compiled_of(loaded: Any, batch: int = 1) -> tuple[Any, Subject, torch.Tensor]:
    workload = DecodeWorkload(batch, CONTEXT, NEW_TOKENS)
    step = build_variant("compiled", loaded, workload, "cuda")
    return step, Subject(loaded, workload, "cuda", "compiled"), make_prompt(loaded, workload)


def measured_window(
    step: Any, subject: Subject, prompt: torch.Tensor, session: ProfilerSession, path: Path
) -> Analysis:
    reference = record_reference(step.ungraphed(), subject, prompt, session)
    return whole_window(lambda: measure_run(step, subject, prompt, session, path, reference), path)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "mistral"])
def test_every_op_of_a_replay_has_its_range(
    load_small: Load, session: ProfilerSession, tmp_path: Path, architecture: str, batch: int
) -> None:
    loaded = on_gpu(load_small(architecture), torch.bfloat16)
    step, subject, prompt = compiled_of(loaded, batch)
    analysis = measured_window(step, subject, prompt, session, tmp_path / "window.json")
    report = analysis.report
    attribution = report.attribution
    assert attribution is not None
    assert (attribution.partial, attribution.none) == (0, 0)
    assert attribution.exact == len(analysis.trace.ops) == report.devices[0].gpu_ops
    found = {one.path: one for one in report.ranges}
    for number in range(3):
        for part in ("attention", "mlp"):
            one = found[f"decode_step/model/layer.{number}/{part}"]
            assert (one.confidence, one.gpu_ops % 3) == ("exact", 0)
    named = {part for path in found for part in path.rpartition("/")[2].split("+")}
    parts = {path.rpartition("/")[2] for path in range_paths(loaded.model).values()}
    # The angles may be computed in the layers' own kernels.
    assert parts - {"rotary"} <= named
    assert "(graph replay)" not in named


def test_naming_the_kernels_leaves_the_measured_step_as_it_was(
    load_small: Load, session: ProfilerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = on_gpu(load_small("llama"), torch.float32)
    step, subject, prompt = compiled_of(loaded)
    step.prefill(prompt)
    expected = [step.step() for _ in range(NEW_TOKENS)]
    assert try_reference(step, subject, prompt, session, lambda stage: None) is not None

    monkeypatch.setattr(torch._dynamo.config, "error_on_recompile", True)
    compiled_before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    step.prefill(prompt)
    assert all(torch.equal(step.step(), ids) for ids in expected)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == compiled_before


def test_the_lead_takes_the_wait_of_the_first_step(
    load_small: Load, session: ProfilerSession, tmp_path: Path
) -> None:
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    step, subject, prompt = compiled_of(loaded)
    analysis = measured_window(step, subject, prompt, session, tmp_path / "window.json")
    report = analysis.report
    assert report.launches.graph_launches == len(report.steps) == 3
    assert sum(one.gpu_ops for one in report.steps) == report.devices[0].gpu_ops
    assert {one.gpu_ops for one in report.steps} == {report.steps[0].gpu_ops}
    assert report.health.unlinked_gpu_ops == 0


def test_the_kernel_floor_is_measured_and_travels(
    load_small: Load, session: ProfilerSession, tmp_path: Path
) -> None:
    floor_ns = session.kernel_floor_ns
    assert floor_ns is not None
    # H200: 1,248. Far above that, the host was not ahead; far below, the gaps are no gaps.
    assert 200 < floor_ns < 10_000
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    workload = DecodeWorkload(1, CONTEXT, NEW_TOKENS)
    step = build_variant("eager", loaded, workload, "cuda")
    subject = Subject(loaded, workload, "cuda", "eager", kernel_floor_ns=floor_ns)
    path = tmp_path / "window.json"
    measure_run(step, subject, make_prompt(loaded, workload), session, path)
    device = analyze(load(path)).report.devices[0]
    assert (device.kernel_floor_ns, device.kernel_floor_estimated) == (floor_ns, False)


def test_the_kernel_floor_repeats() -> None:
    floors = []
    for _ in range(2):
        session = ProfilerSession("cuda")
        session.warm_up()
        assert session.kernel_floor_ns is not None
        floors.append(session.kernel_floor_ns)
    assert max(floors) < 2 * min(floors)


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(
    ("dtype", "way", "limit"),
    [(torch.float32, "batched_mm", 1e-4), (torch.bfloat16, "grouped_mm", 0.05)],
)
def test_experts_are_captured(
    dtype: torch.dtype, way: str, limit: float, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_family("mixtral", "cuda", dtype)
    workload = DecodeWorkload(batch, CONTEXT, 4)
    monkeypatch.setattr(torch._dynamo.config, "error_on_recompile", True)
    logits = {}
    for name in ("eager", "compiled"):
        step: Any = build_variant(name, loaded, workload, "cuda")
        copies = "batched_mm" if batch == 1 else None
        assert step._experts_way == (copies if name == "eager" else way)
        step.prefill(torch.arange(3, 3 + batch * CONTEXT).view(batch, CONTEXT) % 97)
        ids = torch.arange(7, 7 + batch)
        logits[name] = torch.stack([step.forced_step(ids) for _ in range(3)]).float()
    error = (logits["compiled"] - logits["eager"]).norm() / logits["eager"].norm()
    assert error < limit


@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_forced_logits_of_compiled_are_those_of_eager(load_small: Load, architecture: str) -> None:
    loaded = on_gpu(load_small(architecture), torch.float32)
    workload = DecodeWorkload(2, CONTEXT, NEW_TOKENS, "fp32")
    prompt = make_prompt(loaded, workload)
    forced = torch.randint(3, 97, (NEW_TOKENS, 2), generator=torch.Generator().manual_seed(1))
    logits: dict[str, torch.Tensor] = {}
    for name in ("eager", "compiled"):
        step = build_variant(name, loaded, workload, "cuda")
        step.prefill(prompt)
        kept = [step.forced_step(ids) for ids in forced]
        logits[name] = torch.stack(kept)
        assert step.position == CONTEXT + NEW_TOKENS
    torch.testing.assert_close(logits["compiled"], logits["eager"], atol=1e-4, rtol=1e-3)


def test_a_compiler_that_fails_costs_only_the_names(
    load_small: Load,
    session: ProfilerSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    step, subject, prompt = compiled_of(loaded)
    step.prefill(prompt)
    expected = step.step().clone()

    def fail(*args: object) -> None:
        raise RuntimeError("ptxas not found")

    monkeypatch.setattr(_TracedStep, "_backend", fail)
    assert try_reference(step, subject, prompt, session, lambda stage: None) is None
    assert "stay without ranges" in capsys.readouterr().err
    step.prefill(prompt)
    assert torch.equal(step.step(), expected)


def test_the_read_peak_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(read_peaks, "cache_folder", lambda: tmp_path)
    first = read_peaks.read_peak()
    assert isinstance(first, ReadPeak)
    monkeypatch.setattr(read_peaks, "measure_read_peak", lambda: 1.0)
    assert read_peaks.read_peak() == first
    assert this_gpu() == this_gpu()
    assert this_gpu().uuid in str(next(tmp_path.iterdir()))
