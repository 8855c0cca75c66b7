"""Every script's record names its command and environment; scripts that need a GPU refuse early."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks import attention_share, batch_scaling, kernel_sanitizer
from benchmarks.common import write_record


def test_a_record_names_the_command_that_measures_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["/a/checkout/benchmarks/app_costs.py", "--repeats", "2"])
    write_record(path, {"figure": 1})
    record = json.loads(path.read_bytes())
    assert list(record) == ["command", "figure", "environment"]
    assert record["command"] == "python -m benchmarks.app_costs --repeats 2"
    assert record["environment"]["torch"] == torch.__version__
    write_record(path, {"environment": {}}, "make test-gpu")
    assert json.loads(path.read_bytes()) == {"command": "make test-gpu", "environment": {}}


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("script", [attention_share, batch_scaling, kernel_sanitizer])
def test_without_a_gpu_a_script_ends_with_code_3(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [script.__name__])
    assert script.main() == 3
    assert f"{script.__name__.rpartition('.')[2]}: needs a CUDA device" in capsys.readouterr().err
