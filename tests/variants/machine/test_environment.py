import importlib.util
import json
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.listings import doctor_checks
from decodescope.variants.machine import environment as subject
from decodescope.variants.machine.environment import (
    choose_device,
    environment,
    require_run_packages,
)

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


def hide_package(monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> Any:
        return None if name == hidden else real(name, package)

    monkeypatch.setattr(subject, "find_spec", find_spec)


def test_the_environment_is_plain_data() -> None:
    facts = environment()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["torch"] == torch.__version__.split("+")[0] or facts["torch"] == torch.__version__
    assert str(facts["date"]).endswith("+00:00")
    for key in ("decodescope", "python", "transformers", "platform", "cpu", "cpu_cores"):
        assert facts[key] is not None, key
    assert {"triton", "cuda", "driver", "gpu", "gpu_sms", "gpu_memory_bytes"} <= set(facts)


@NO_GPU
def test_without_cuda_the_cpu_is_chosen_and_cuda_is_refused() -> None:
    assert choose_device(None) == "cpu"
    assert choose_device("cpu") == "cpu"
    with pytest.raises(MissingRequirement, match=r"--device cuda: .*use --device cpu"):
        choose_device("cuda")
    facts = environment()
    assert facts["gpu"] is None
    assert facts["cuda"] is None


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require_run_packages()
    hide_package(monkeypatch, "torch")
    with pytest.raises(MissingRequirement, match=r"torch not installed.*pip install '\.\[run\]'"):
        require_run_packages()
    with pytest.raises(MissingRequirement, match=r"torch is not installed"):
        choose_device("cuda")
    assert choose_device(None) == "cpu"
    failed = {check.name: check for check in doctor_checks() if check.status == "fail"}
    assert {"packages", "profiler"} <= set(failed)
    assert "pip install '.[run]'" in str(failed["packages"].advice)


def test_the_driver_version_is_read_from_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    proc = tmp_path / "version"
    proc.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        "GCC version:  gcc version 13.2.0\n"
    )
    monkeypatch.setattr(subject, "Path", lambda path: proc)
    assert subject.driver_version() == "580.95.05"


def test_doctor_gives_advice_for_every_check_that_is_not_ok() -> None:
    checks = doctor_checks()
    assert len({check.name for check in checks}) == len(checks)
    for check in checks:
        assert check.detail
        assert check.status == "ok" or check.advice, check.name
    assert not [check for check in checks if check.status == "fail"]
