"""The example package as its user has it: installed beside decodescope, found by its entry point.

Without a GPU, Triton's interpreter runs its kernel.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.variants.measuring.run import run_variant

# Warnings of CUPTI are not ours.
pytestmark = pytest.mark.filterwarnings("default")

Python = Callable[..., subprocess.CompletedProcess[str]]
PACKAGE = "examples/decodescope-fast-norm"
# Norms of tiny: two a layer, and the last one.
NORMS = 9
TOKENS = 6


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package, as pip installs it without a network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-index",
            "--no-build-isolation",
            "--no-compile",
            "--target",
            str(folder),
            str(repository / PACKAGE),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture
def python(site: Path, device: str) -> Python:
    """A Python process in whose environment the package is installed."""
    paths = filter(None, [str(site), os.environ.get("PYTHONPATH")])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("TRITON_INTERPRET", None)
    if device == "cpu":
        environment["TRITON_INTERPRET"] = "1"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )

    return run


def decoded(python: Python, device: str) -> RunReport:
    asked = ("run", "--variant", "fast-norm", "--model", "tiny", "--device", device, "--json")
    done = python("decodescope", *asked, "--tokens", str(TOKENS), "--dtype", "fp32")
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout, type=RunReport)


def decoded_by_eager(device: str) -> RunReport:
    config = WorkerConfig(
        variant="eager", batch=1, tokens=TOKENS, model="tiny", device=device, dtype="fp32"
    )
    return run_variant(config, None, lambda stage: None)


def test_the_package_passes_its_own_tests(python: Python, repository: Path) -> None:
    done = python("pytest", "-q", "-p", "no:cacheprovider", str(repository / PACKAGE))
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_decodescope_lists_it(python: Python, device: str) -> None:
    done = python("decodescope", "variants", "--device", device)
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if " fast-norm " in line)
    assert "eager with every" in row
    assert ("interpreted" in row) == (device == "cpu")


def test_it_gives_the_tokens_of_eager(python: Python, device: str) -> None:
    """The interpreter gives no rate."""
    own, eager = decoded(python, device), decoded_by_eager(device)
    assert own.interpreted == (device == "cpu")
    assert len(own.output_token_ids[0]) == TOKENS
    assert own.output_token_ids == eager.output_token_ids
    assert own.bytes_per_step == pytest.approx(eager.bytes_per_step, rel=1e-3)
    assert (own.tokens_per_s is None) == (device == "cpu")


@pytest.mark.gpu
def test_each_norm_is_one_launch(python: Python) -> None:
    own, eager = decoded(python, "cuda"), decoded_by_eager("cuda")
    assert own.launch_calls_per_step is not None
    assert eager.launch_calls_per_step is not None
    saved = eager.launch_calls_per_step - own.launch_calls_per_step
    assert saved >= 5 * NORMS
    assert saved % NORMS == 0


def test_a_model_without_rms_norm_is_refused_in_one_line(
    python: Python, device: str, tmp_path: Path
) -> None:
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    asked = ("run", "--model", str(tmp_path), "--variant", "fast-norm", "--device", device)
    done = python("decodescope", *asked, "--context", "4", "--tokens", "4")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert f"variant fast-norm: {tmp_path} has no RMSNorm" in lines[-1]
    assert "Traceback" not in done.stderr
