"""Comparisons on the CPU that are interrupted, in real processes, with an installed variant.

tests/tui/comparing/test_comparison_link.py follows a whole one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.schema.comparison_report import Comparison
from tests.helpers.processes import children, gone

PACKAGE = """
import os
from decodescope.variants.registry import Variant

def build_static(loaded, workload, device):
    from decodescope.variants.steps.compiled_step import StaticStep
    class PlainStep(StaticStep):
        def ungraphed(self):
            return None
    print("what a library prints")
    os.system("echo what a program prints")
    return PlainStep(loaded, workload, lambda forward: forward)

STATIC = Variant("static", "a cache of fixed size", False, build_static)
"""
ENTRY_POINTS = "[decodescope.variants]\nstatic = mine:STATIC\n"
COMMAND = (
    "compare",
    "--model",
    "tiny",
    "--device",
    "cpu",
    "--variants",
    "eager,static",
    "--json",
    "--batch",
    "2",
    "--tokens",
    "20",
    "--context",
    "16",
    "--repeats",
    "50",
    "--out",
)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with the variant `static`, here and in child processes."""
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
@pytest.mark.skipif(sys.platform != "linux", reason="looks for child processes in /proc")
def test_an_interrupt_keeps_whole_rounds_and_leaves_no_process(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, temporary = tmp_path / "out", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    text = tmp_path / "text"
    text.write_text("def add(left, right):\n    return left + right\n")
    arguments = [sys.executable, "-m", "decodescope", *COMMAND, str(out), "--text", str(text)]
    said = ""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            said += line
            if line.startswith("round 2 of 50: eager") and "loading" in line:
                break
        started = children(process.pid)
        process.send_signal(signal.SIGINT)
        printed = msgspec.json.decode(process.stdout.read(), type=Comparison)
    assert process.returncode == 128 + signal.SIGINT
    assert "what a library prints" in said
    assert "what a program prints" in said
    assert [(one.variant, one.round) for one in printed.runs] == [("eager", 0), ("static", 0)]
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
