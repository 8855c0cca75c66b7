import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers"


def decodescope(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (str(PEERS), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, "-m", "decodescope", *arguments],
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_folder_on_the_path_is_enough_to_list_the_peer() -> None:
    listed = decodescope("variants")
    assert listed.returncode == 0, listed.stderr
    assert "torchao-fp8" in listed.stdout
    assert (
        "torchao-fp8"
        not in subprocess.run(
            [sys.executable, "-m", "decodescope", "variants"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )


class _Packed(torch.Tensor):
    """As a tensor of torchao: states bf16 and stores FP8 with a scale for each row."""

    qdata: torch.Tensor
    scale: torch.Tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["qdata", "scale"], None


def test_bytes_are_those_that_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PEERS))
    from decodescope_torchao import stored_bytes  # type: ignore[import-not-found]

    from tests.helpers.families import build

    model = build("llama2", torch.bfloat16)
    down = model.model.layers[0].mlp.down_proj
    plain = stored_bytes(model, 3)
    packed = down.weight.detach().as_subclass(_Packed)
    packed.qdata = torch.zeros(down.weight.shape, dtype=torch.float8_e4m3fn)
    packed.scale = torch.ones(down.weight.shape[0], 1)
    down.weight = torch.nn.Parameter(packed, requires_grad=False)
    down.weight.qdata, down.weight.scale = packed.qdata, packed.scale
    assert plain - stored_bytes(model, 3) == packed.qdata.nbytes - packed.scale.nbytes
