"""The peers as their user has them: installed beside decodescope, found by their entry points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "examples/decodescope-peers"


def test_decodescope_lists_them_with_what_they_need(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    install = ["pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install += ["--no-index", "--no-build-isolation", "--no-compile", "--target", str(tmp_path)]
    subprocess.run(
        [sys.executable, "-m", *install, str(repository / PACKAGE)], check=True, capture_output=True
    )
    paths = filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])
    done = subprocess.run(
        [sys.executable, "-m", "decodescope", "variants"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
    )
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if line.split()]
    assert names.index("compiled") < names.index("gpt-fast")
    peers = {"gpt-fast", "gpt-fast-int4", "liger", "torchao-fp8", "torchao-int4", "torchao-int8"}
    assert peers <= set(names)
