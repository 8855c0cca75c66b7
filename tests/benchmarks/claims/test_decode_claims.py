"""The rows of the claims about whole decode steps that compare with other projects and FP8."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import decodescope_peers
from benchmarks.claims.bench import comparable_with
from benchmarks.claims.decode import kernl_fp8, megakernels, peers
from benchmarks.claims.decode.kernl_fp8 import measure_fp8
from benchmarks.claims.decode.megakernels import measure_megakernels
from benchmarks.claims.decode.peers import LLAMA_1B, LLAMA_8B, importable, measure_peers
from benchmarks.claims.report import Row
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants import registry
from decodescope.variants.comparing import command
from decodescope.variants.comparing.job_process import RunJob, run_job
from decodescope.variants.measuring import request
from tests.benchmarks.claims.scripted_runs import Scripted, ScriptedRuns, setup_with
from tests.helpers.peers import install_peers

EAGER = Scripted((20_000_000,), busy_ns=4_000_000, error=0.02)
GRAPH = Scripted((700_000,), busy_ns=690_000, error=0.02, bytes_per_step=2_470_000_000)
FP8 = Scripted((400_000,), busy_ns=390_000, error=0.2)
SLOWER = Scripted((1_400_000,), busy_ns=1_000_000, error=0.02)
SCRIPTS = {
    "eager": EAGER,
    "compiled": SLOWER,
    "fused+graph": GRAPH,
    peers.OURS_FP8: FP8,
    "gpt-fast": SLOWER,
    "torchao-fp8": replace(FP8, step_ns=(1_000_000,)),
    "liger": EAGER,
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variants that need CUDA pass for runnable: only scripted runs are done."""
    install_peers(tmp_path / "site", monkeypatch)
    for module in (command, request):
        monkeypatch.setattr(module, "choose_device", lambda _: "cuda")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """torchao and Liger are there, and a checkout of gpt-fast."""
    for name in ("model.py", "generate.py"):
        (tmp_path / name).write_text("")
    found = decodescope_peers.find_spec
    monkeypatch.setattr(
        decodescope_peers, "find_spec", lambda name: found(name) if name == "model" else object()
    )
    return tmp_path


def row(rows: tuple[Row, ...], what: str) -> Row:
    return next(one for one in rows if one.what == what)


@pytest.mark.parametrize(
    ("gpu", "published"),
    [
        ("NVIDIA H200", [759.83, 794.74]),
        ("NVIDIA H100 80GB HBM3", [972.78, 979.51]),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA GH200 480GB", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_the_published_step_is_of_this_kind_of_gpu(gpu: str, published: list[float] | None) -> None:
    scripts = {name: replace(one, device_name=gpu) for name, one in SCRIPTS.items()}
    runs = ScriptedRuns(scripts)
    measured = measure_megakernels(setup_with(runs))
    assert {job.config.context for job in runs.jobs} == {32}
    assert {job.config.tokens for job in runs.jobs} == {128}
    every = [972.78, 979.51, 759.83, 794.74]
    found = [1e6 / one.published for one in measured.rows if one.published is not None]
    assert found == pytest.approx(published or every)
    assert [one.comparable for one in measured.rows] == [published is not None] * len(found)
    for one in measured.rows:
        assert one.measured is not None
        assert one.measured.median == pytest.approx(1e9 / 700_000)
        assert (one.reached is None) == (published is None)
        assert ("not comparable" in one.explanation) == (published is None)


def test_both_gpus_of_a_source_compare() -> None:
    source = megakernels.SOURCE
    assert "every figure compares" in comparable_with(source, "NVIDIA H200")
    assert "every figure compares" in comparable_with(source, "NVIDIA H100 80GB HBM3")
    assert "do not compare" in comparable_with(source, "NVIDIA GH200 480GB")


def test_published_shares_are_of_the_datasheet_of_their_gpu_or_of_this_limit() -> None:
    scripts = {name: replace(one, device_name="NVIDIA L4") for name, one in SCRIPTS.items()}
    elsewhere = measure_megakernels(setup_with(ScriptedRuns(scripts))).rows[2]
    # 2.47 GB in 759.83 µs, of 4.8 TB/s.
    assert elsewhere.published_share == pytest.approx(0.6772, abs=1e-3)
    scripts = {name: replace(one, device_name="NVIDIA H200") for name, one in SCRIPTS.items()}
    here = measure_megakernels(setup_with(ScriptedRuns(scripts))).rows[0]
    assert here.limit is not None
    assert here.published_share == pytest.approx(1e6 / 759.83 / here.limit)


def test_peers_that_are_there_run_beside_ours(installed: Path) -> None:
    runs = ScriptedRuns(SCRIPTS)
    setup = replace(setup_with(runs), gpt_fast=installed)
    measured = measure_peers(setup, LLAMA_8B, peers.GPT_FAST_8B_TOKENS_PER_S)
    assert set(runs.ran) == set(SCRIPTS)
    assert len(runs.ran) == 2 * len(SCRIPTS)
    for ours, peer, ratio in (
        ("fused+graph", "gpt-fast", 2.0),
        ("fused+graph", "compiled", 2.0),
        (peers.OURS_FP8, "torchao-fp8", 2.5),
        ("fused+graph", "liger", 20 / 0.7),
    ):
        found = row(measured.rows, f"{ours} / {peer}").measured
        assert found is not None
        assert found.median == pytest.approx(ratio)
    theirs = row(measured.rows, "gpt-fast")
    assert theirs.published == 93.89
    assert theirs.published_share == pytest.approx(93.89 * 0.1 / 2039)


def test_a_peer_that_is_wrong_has_no_ratio(installed: Path) -> None:
    scripts = {**SCRIPTS, "gpt-fast": replace(SLOWER, error=0.05)}
    setup = replace(setup_with(ScriptedRuns(scripts)), gpt_fast=installed)
    measured = measure_peers(setup, LLAMA_1B)
    assert row(measured.rows, "fused+graph / gpt-fast").measured is None
    assert row(measured.rows, "gpt-fast").error is not None
    assert row(measured.rows, "fused+graph / compiled").error is None


def test_peers_that_are_missing_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decodescope_peers, "find_spec", lambda name: None)
    runs = ScriptedRuns(SCRIPTS)
    measured = measure_peers(setup_with(runs), LLAMA_1B)
    assert set(runs.ran) == set(LLAMA_1B.variants)
    said = [note for note in measured.notes if note.startswith("not measured: ")]
    assert [note.split()[2] for note in said] == list(LLAMA_1B.peers)
    assert "not measured: torchao-fp8 needs torchao: pip install torchao" in said
    assert not any("gpt-fast" in one.what for one in measured.rows)


def test_without_their_package_peers_are_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    measured = measure_peers(setup_with(ScriptedRuns(SCRIPTS)), LLAMA_1B)
    said = [note for note in measured.notes if note.startswith("not measured: ")]
    needs = "needs its variant: pip install ./examples/decodescope-peers"
    assert said == [f"not measured: {name} {needs}" for name in LLAMA_1B.peers]


@pytest.mark.parametrize("inherited", [None, "/somewhere"])
def test_a_checkout_is_importable_here_and_in_children_only_within(
    installed: Path, monkeypatch: pytest.MonkeyPatch, inherited: str | None
) -> None:
    if inherited is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", inherited)
    before = list(sys.path)
    with importable(installed):
        assert str(installed) in sys.path
        assert os.environ["PYTHONPATH"].split(os.pathsep)[-1] == str(installed)
    assert sys.path == before
    assert os.environ.get("PYTHONPATH") == inherited


def test_the_process_of_a_run_finds_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("model.py", "generate.py"):
        (tmp_path / name).write_text("")
    job = RunJob(
        WorkerConfig(variant="gpt-fast", batch=1, tokens=4, model="tiny", device="cpu"), None
    )
    with importable(tmp_path), pytest.raises(MissingRequirement) as refused:
        run_job(job, lambda _: None)
    # Without the checkout it would need that as well.
    assert str(refused.value).startswith("variant gpt-fast: needs a CUDA device; choose")


def test_fp8_has_memory_perplexity_and_speed() -> None:
    theirs = replace(FP8, perplexity_ratio=1.027, error=0.15)
    runs = ScriptedRuns({**SCRIPTS, kernl_fp8.THEIRS: theirs, kernl_fp8.OURS: FP8})
    measured = measure_fp8(setup_with(runs))
    assert {job.config.model for job in runs.jobs} == {"tiny", "llama-2-7b@random"}
    stored = row(measured.rows, f"weights stored by {kernl_fp8.THEIRS}").measured
    assert stored is not None
    # lm_head and the embedding table of 6.74 G weights stay, 131 M each.
    assert stored.median == pytest.approx(0.5 + 0.5 * 262 / 6738, abs=1e-3)
    quality = row(measured.rows, f"perplexity of {kernl_fp8.THEIRS}")
    assert quality.measured is not None
    assert quality.measured.median == 1.027
    assert "2.7 % more" in quality.explanation
    ratio = row(measured.rows, f"{kernl_fp8.OURS} / fused+graph").measured
    assert ratio is not None
    assert ratio.median == pytest.approx(1.75)


def test_fp8_beyond_its_tolerance_has_no_figures() -> None:
    wrong = replace(FP8, error=1.01)
    runs = ScriptedRuns({**SCRIPTS, kernl_fp8.THEIRS: FP8, kernl_fp8.OURS: wrong})
    measured = measure_fp8(setup_with(runs))
    failed = [one.what for one in measured.rows if one.error is not None]
    ours = kernl_fp8.OURS
    assert failed == [f"perplexity of {ours}", f"tok/s, {ours}", f"{ours} / fused+graph"]
