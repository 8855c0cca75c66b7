"""Fused variants in Triton's interpreter: tokens and accuracy on the CPU, and no times."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.html.report_page import html_report
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.views.comparison_table import comparison_markdown
from decodescope.kernels.host.weights import NarrowFormat
from decodescope.variants import registry
from decodescope.variants.comparing.accuracy_text import INTERPRETED_POSITIONS
from decodescope.variants.comparing.command import CompareRequest, compare_variants
from decodescope.variants.comparing.job_worker import do_job
from decodescope.variants.live.session import TorchSession
from decodescope.variants.machine import environment
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.quantized_weights import Quantization
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload_costs import KvBytes, weight_bytes_read
from tests.helpers import families
from tests.helpers.comparison_reports import run_of

CONFIG = WorkerConfig(variant="fused", batch=1, tokens=4, model="tiny", device="cpu")
UNTIMED = ("tokens_per_s", "prefill_ns", "step_ns", "bandwidth", "gpu_idle_fraction")


# The interpreter as it is here, which takes half as long.
MAIN = "import tests.helpers.triton_mode; from decodescope.cli.main import main; main()"


def decodescope(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with Triton's switch on, which Triton reads when kernels are imported."""
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )


@pytest.fixture
def interpreting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "interpreting", lambda: True)


def test_the_bundled_model_gives_the_tokens_of_eager() -> None:
    asked = ("run", "--variant", "fused", "--model", "tiny", "--device", "cpu", "--tokens", "4")
    done = decodescope(*asked, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    eager = run_variant(msgspec.structs.replace(CONFIG, variant="eager"), None, lambda stage: None)
    assert report["output_token_ids"] == eager.output_token_ids
    assert report["output_text"] == eager.output_text == " self._handle"
    assert report["interpreted"] is True
    assert not eager.interpreted
    assert {name: report[name] for name in UNTIMED} == dict.fromkeys(UNTIMED)
    assert (report["timed_steps"], report["answer"]["parts"]) == (0, [])
    assert (report["answer"]["bound"], report["answer"]["step_ns"]) == ("unknown", None)
    (finding,) = report["health"]["findings"]
    assert finding["code"] == "interpreted"
    assert report["bytes_per_step"] == pytest.approx(eager.bytes_per_step, rel=0.01)


# eager comes after a variant that rounds the weights, as the reference does.
NARROW = "fused+fp8_e4m3"
VARIANTS = (NARROW, "eager")
TOKENS = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model in a folder."""
    folder = tmp_path_factory.mktemp("model")
    families.build("llama-tied", torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def compared(model: Path) -> Comparison:
    """One comparison, whose jobs are done in this process."""
    if not registry.interpreting():
        pytest.skip("with a GPU, kernels of this process are compiled")
    asked = msgspec.structs.replace(CONFIG, model=str(model), tokens=TOKENS, context=4)
    return compare_variants(CompareRequest(asked, VARIANTS, 1), lambda event: None, run=do_job)


def test_a_comparison_gives_accuracy_and_no_ratio(compared: Comparison) -> None:
    assert [run.variant for run in compared.runs] == list(VARIANTS)
    runs = {run.variant: run for run in compared.runs}
    assert [name for name, run in runs.items() if not run.interpreted] == ["eager"]
    assert runs["eager"].tokens_per_s is not None
    scores = {name: run.accuracy for name, run in runs.items() if run.accuracy is not None}
    assert {score.positions for score in scores.values()} == {INTERPRETED_POSITIONS}
    errors = {name: score.logit_rel_error for name, score in scores.items()}
    assert errors["eager"] == 0
    assert 1e-4 < errors[NARROW] < 0.2
    assert "accuracy_missing" not in {finding.code for finding in compared.comparison.findings}
    sizes = {name: run.bytes_per_step for name, run in runs.items()}
    assert sizes[NARROW] < 0.5 * sizes["eager"]
    assert {pair.speed for pair in compared.comparison.pairs} == {None}
    assert list(compared.windows) == ["eager"]
    assert "interpreted" in comparison_markdown(compared)
    assert "interpreted" in html_report("a page", (), compared)


def test_a_narrow_format_gives_the_tokens_of_the_quantised_model(
    compared: Comparison, model: Path
) -> None:
    (report,) = (run for run in compared.runs if run.variant == NARROW)
    loaded = load_model(resolve_model(str(model)), "cpu", report.dtype)
    quantize_model("small", loaded.model, Quantization("fp8_e4m3"))
    prompt = torch.tensor(report.prompt_token_ids)
    expected = loaded.model.generate(prompt, max_new_tokens=TOKENS, do_sample=False)
    assert report.output_token_ids == expected[:, prompt.shape[1] :].tolist()
    kv = KvBytes(loaded.model.config, 1, 4)
    positions = [kv.at(prompt.shape[1]), kv.at(prompt.shape[1] + 1)]
    assert report.bytes_per_step == weight_bytes_read(loaded.model, 1) + sum(positions) // 2


@pytest.mark.parametrize("format", ["fp8_e4m3", "int8"])
def test_a_narrow_format_reads_a_quarter_of_fp32(format: NarrowFormat) -> None:
    loaded = load_model(resolve_model("tiny"), "cpu", "fp32")
    before = weight_bytes_read(loaded.model, 1)
    quantize_model("tiny", loaded.model, Quantization(format))
    # All but norms and one row of the table.
    assert weight_bytes_read(loaded.model, 1) < 0.26 * before


def interpreted(variant: str, number: int) -> RunReport:
    nothing: dict[str, Any] = dict.fromkeys(UNTIMED)
    return msgspec.structs.replace(run_of(variant, number, 1.0), interpreted=True, **nothing)


@pytest.mark.parametrize("base", ["eager", "fused"])
def test_every_output_of_a_comparison_says_interpreted(base: str) -> None:
    timed = [run_of("eager", number, 100.0 + number) for number in range(3)]
    first = timed if base == "eager" else [interpreted("fused", number) for number in range(3)]
    other = [interpreted("fused-rope", number) for number in range(3)]
    compared = compare_runs([*first, *other], {})
    assert [rates.mean is None for rates in compared.comparison.variants] == [base == "fused", True]
    assert all(pair.speed is None for pair in compared.comparison.pairs)
    assert "interpreted" in [finding.code for finding in compared.comparison.findings]
    assert "| fused-rope | interpreted |" in comparison_markdown(compared)
    page = html_report("a page", (), compared)
    assert page.count(">interpreted<") >= 2
    assert not compared.comparison.variants[1].tokens_per_s


@pytest.mark.usefixtures("interpreting")
def test_no_trace_is_kept_of_an_interpreted_variant(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--trace .* leave --trace out"):
        run_variant(CONFIG, tmp_path / "t.json", lambda stage: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("interpreting")
def test_the_app_offers_interpreted_variants_that_have_no_graph() -> None:
    prepared = prepare(msgspec.structs.replace(CONFIG, variant="eager"), lambda stage: None)
    session = TorchSession(prepared, None, None)  # type: ignore[arg-type]
    offered = {info.name: info for info in session.hello().variants}
    assert offered["fused"].unavailable is None
    assert offered["fused"].interpreted
    assert offered["fused+graph"].unavailable is not None
    assert (session.interprets("fused"), session.interprets("eager")) == (True, False)


def test_a_gpu_is_not_measured_while_kernels_are_interpreted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "12.9")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(environment, "interpreting", lambda: True)
    assert environment.choose_device(None) == "cpu"
    with pytest.raises(MissingRequirement, match="TRITON_INTERPRET is set"):
        environment.choose_device("cuda")
