"""Whole comparisons on the CPU, in real processes, with a variant from an installed package."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.messages import ComparisonEvent, ComparisonProgress
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.variants.comparing.command import CompareRequest, compare_variants
from tests.helpers.processes import children, gone

CONFIG = WorkerConfig(variant="", batch=2, tokens=20, context=16, model="tiny", device="cpu")
PACKAGE = """
import os, signal
from pathlib import Path
from decodescope.variants.registry import Variant

BUILDS = Path(__file__).with_name("builds")

def build_static(loaded, workload, device):
    from decodescope.variants.steps.compiled_step import StaticStep
    class PlainStep(StaticStep):
        def ungraphed(self):
            return None
    print("what a library prints")
    os.system("echo what a program prints")
    BUILDS.write_text(BUILDS.read_text() + "." if BUILDS.exists() else ".")
    if len(BUILDS.read_text()) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return PlainStep(loaded, workload, lambda forward: forward)

STATIC = Variant("static", "a cache of fixed size", False, build_static)
"""
ENTRY_POINTS = "[decodescope.variants]\nstatic = mine:STATIC\n"
INTERRUPTED = """
import signal
# A test session in a shell's background ignores Ctrl-C, and so would this process.
signal.signal(signal.SIGINT, signal.default_int_handler)
from decodescope.cli.main import main
main()
"""
COMMAND = (
    "compare", "--model", "tiny", "--device", "cpu", "--variants", "eager,static", "--json",
    "--batch", "2", "--tokens", "20", "--context", "16", "--repeats", "50", "--out",
)  # fmt: skip


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with the variant `static`, which is killed the second time it is built;
    here and in child processes."""
    folder = tmp_path / "installed"
    info = folder / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "mine.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    yield folder
    sys.modules.pop("mine", None)


@pytest.mark.slow
@pytest.mark.usefixtures("package")
def test_two_variants_are_compared_and_a_killed_run_drops_its_round(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reported: list[ComparisonEvent] = []
    request = CompareRequest(CONFIG, ("eager", "static"), repeats=3, keep=tmp_path / "out")
    with compare_variants(request, reported.append) as outcome:
        comparison = outcome.comparison
    assert [(one.variant, one.round) for one in comparison.runs] == [
        ("eager", 0), ("static", 0), ("eager", 2), ("static", 2),
    ]  # fmt: skip
    findings = {finding.code: finding.message for finding in comparison.comparison.findings}
    assert findings["round_left_out"].startswith("round 2 of 3 is left out: variant static failed")
    assert "killed by SIGKILL" in findings["round_left_out"]

    outputs = [one.output_token_ids for one in comparison.runs]
    assert all(output == outputs[0] for output in outputs)
    assert all(one.tokens_per_s > 0 for one in comparison.runs)
    assert len({one.environment["date"] for one in comparison.runs}) > 1
    for one in comparison.runs:
        assert one.accuracy is not None
        assert one.accuracy.logit_rel_error < 1e-5
        assert one.accuracy.top1_agreement == 1
    assert comparison.runs[0].accuracy.logit_rel_error == 0

    assert set(comparison.windows) == {"eager", "static"}
    assert all(len(window.steps) == 3 for window in comparison.windows.values())
    kept = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert kept == [
        f"{name}-round{round}.json.gz" for name in ("eager", "static") for round in (0, 2)
    ]
    stages = [one.describe() for one in reported if isinstance(one, ComparisonProgress)]
    assert any(stage.startswith("round 3 of 3: static (") for stage in stages)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "what a library prints" in printed.err
    assert "what a program prints" in printed.err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_keeps_whole_rounds_and_leaves_no_process(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (package / "builds").write_text("..")
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    arguments = [sys.executable, "-c", INTERRUPTED, *COMMAND, str(out)]
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round 2 of 50: eager") and "decoding" in line:
                break
        started = children(process.pid)
        process.send_signal(number)
        printed = msgspec.json.decode(process.stdout.read(), type=Comparison)
    assert process.returncode == 128 + number
    assert [one.round for one in printed.runs] == [0, 0]
    assert printed.comparison.findings[0].code == "interrupted"
    assert msgspec.json.decode((out / "comparison.json").read_bytes(), type=Comparison) == printed
    assert started
    assert all(gone(pid) for pid in started)
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.html",
        "comparison.json",
        "comparison.md",
        "eager-round0.json.gz",
        "static-round0.json.gz",
    ]
