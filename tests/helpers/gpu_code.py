"""What Triton makes of kernels for a GPU that need not be here.

`python -m tests.helpers.gpu_code STAGE KERNELS` prints it: a process of its own, which compiles
kernels even if those that ask interpret them. It ends each at the stage that is asked for: an
assembler takes most of the time.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn


@dataclass(frozen=True)
class Asked:
    """A kernel, and what it is compiled for. Parameters without a type are constants, those without
    a value None; pointers of `aligned` are multiples of 16."""

    module: str
    kernel: str
    types: Mapping[str, str]
    constants: Mapping[str, Any]
    aligned: Sequence[str] = ()
    capability: int = 90
    options: Mapping[str, Any] = field(default_factory=dict)


class _Reached(Exception):
    """The stage that was asked for has been reached."""


def gpu_code(stage: str, kernels: Mapping[str, Asked]) -> dict[str, str]:
    """The text of each kernel after `stage`, "ttgir" or "ptx"."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            __name__,
            stage,
            json.dumps({name: asdict(one) for name, one in kernels.items()}),
        ],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, str] = json.loads(done.stdout)
    return made


def _compiled(stage: str, asked: Asked) -> str:
    from triton import compile, knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = getattr(importlib.import_module(asked.module), asked.kernel)
    names = kernel.arg_names
    constants = dict.fromkeys(name for name in names if name not in asked.types)
    constants |= {
        name: tuple(one) if isinstance(one, list) else one
        for name, one in asked.constants.items()
        if name in names
    }
    signature = {name: asked.types.get(name, "constexpr") for name in names}
    places = [names.index(name) for name in asked.aligned if name in names]
    hints = {(place,): [["tt.divisibility", 16]] for place in places}
    source = ASTSource(kernel, signature, constants, hints)

    def stop(*given: Any) -> tuple[str, str]:
        """Without arguments, what Triton's cache tells the pipeline by."""
        if given:
            stages = given[1]
            made = stages[stage]

            def reached(*operands: Any) -> NoReturn:
                raise _Reached(str(made(*operands)))

            stages[stage] = reached
        return stage, stage

    knobs.runtime.add_stages_inspection_hook = stop
    try:
        compile(source, target=GPUTarget("cuda", asked.capability, 32), options=dict(asked.options))
    except _Reached as end:
        return str(end)
    raise AssertionError(stage)


def _compile_here() -> None:
    """In a fork Triton may have been imported, to interpret."""
    os.environ.pop("TRITON_INTERPRET", None)
    for name in list(sys.modules):
        if name.split(".")[0] == "triton" and not name.startswith("triton._C"):
            del sys.modules[name]


if __name__ == "__main__":
    _compile_here()
    kernels = json.loads(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        made = {name: _compiled(sys.argv[1], Asked(**one)) for name, one in kernels.items()}
    sys.stdout.write(json.dumps(made))
