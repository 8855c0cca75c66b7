"""Every script's record names its command and environment; scripts that need a GPU refuse early."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.harness.records import write_record
from decodescope.cli.ending import end_with
from tests.helpers.command import Command


def test_a_record_names_the_command_that_measures_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(
        sys, "argv", ["/a/checkout/benchmarks/__main__.py", "app-costs", "--repeats", "2"]
    )
    write_record(path, {"figure": 1})
    record = json.loads(path.read_bytes())
    assert list(record) == ["command", "figure", "environment"]
    assert record["command"] == "python -m benchmarks app-costs --repeats 2"
    assert record["environment"]["torch"] == torch.__version__
    monkeypatch.setattr(sys, "argv", ["x", "allreduce", "-o", str(path), "--ranks", "2"])
    write_record(path, {"environment": {}})
    assert json.loads(path.read_bytes())["command"] == "python -m benchmarks allreduce --ranks 2"
    write_record(path, {"environment": {}}, "make test-gpu")
    assert json.loads(path.read_bytes()) == {"command": "make test-gpu", "environment": {}}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(
    ("script", "options"),
    [("compare-variants", []), ("live-overhead", []), ("revisions", ["--base", "HEAD"])],
)
def test_a_command_that_lacks_a_gpu_ends_its_script_with_one_line(
    script: str, options: list[str], repository: Path, tmp_path: Path
) -> None:
    if script == "revisions" and not (repository / ".git").exists():
        pytest.skip("needs a git repository")
    record = () if script == "live-overhead" else ("-o", str(tmp_path / "record.json"))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", script, *options, *record],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("decodescope: ")
    assert list(tmp_path.iterdir()) == []


# A command that has measured a round, or none yet, when it is interrupted.
COMMAND = """
import signal, sys, time
def end(number, frame):
    print({printed}, end="")
    sys.exit(130)
signal.signal(signal.SIGINT, end)
open("started", "w").close()
time.sleep(60)
"""
SCRIPT = """
import sys
from pathlib import Path
from benchmarks.harness.processes import printed_json
from benchmarks.harness.records import write_record
from decodescope.cli.ending import Ending, end_with
def main():
    found = printed_json(checkout=Path.cwd(), partial={partial})
    write_record(Path("record.json"), found, "again")
end_with(main, ending=Ending(finishing="what was measured is being recorded"))
"""


@pytest.mark.parametrize(
    ("printed", "partial", "files"),
    [
        ("'{\"rounds\": 1}'", True, ["record.json"]),
        ("'{\"rounds\": 1}'", False, []),
        ("''", True, []),
    ],
)
def test_an_interrupted_command_is_recorded_as_far_as_it_came(
    printed: str, partial: bool, files: list[str], repository: Path, tmp_path: Path
) -> None:
    module = tmp_path / "src" / "decodescope"
    module.mkdir(parents=True)
    (module / "__init__.py").touch()
    (module / "__main__.py").write_text(COMMAND.format(printed=printed))
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(partial=partial)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{repository / 'src'}:{repository}"},
        start_new_session=True,
    ) as script:
        while not (tmp_path / "started").exists():
            assert script.poll() is None
            time.sleep(0.02)
        os.killpg(script.pid, signal.SIGINT)
    assert script.returncode == 130
    assert [path.name for path in tmp_path.glob("*.json")] == files
    for name in files:
        assert json.loads((tmp_path / name).read_bytes())["rounds"] == 1


def test_a_script_that_fails_ends_with_70_after_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def script() -> None:
        raise KeyError("unforeseen")

    with pytest.raises(SystemExit) as end:
        end_with(script)
    assert end.value.code == 70
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.endswith("please report it with the traceback above")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(
    "command", ["attention-share", "hardware-counters", "kernel-sanitizer", "scaling"]
)
def test_without_a_gpu_a_command_ends_with_code_3(benchmarks: Command, command: str) -> None:
    done = benchmarks(command)
    assert done.code == 3
    assert f"{command}: needs a CUDA device" in done.only_line
