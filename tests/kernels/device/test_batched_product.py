"""What Triton makes of a batched product for other GPUs, compiled in a process of its own: there
the kernels are compiled even if they are interpreted here."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import importlib, json, sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

operation, kernel, capability, types, constants = json.loads(sys.argv[1])
module = importlib.import_module(f"decodescope.kernels.ops.{operation}")
kernel = getattr(module, kernel)
constants |= dict.fromkeys(set(kernel.arg_names) - set(types) - set(constants))
signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
source = ASTSource(kernel, signature, constants)
made = compile(source, target=GPUTarget("cuda", capability, 32), options={"num_stages": 3})
print(made.asm["ttgir"])
"""
TYPES = {"x_ptr": "*fp8e4nv", "w_ptr": "*fp8e4nv", "out_ptr": "*bf16"}
TYPES |= dict.fromkeys(("x_scale_ptr", "scale_ptr", "partial_ptr"), "*fp32")
SIZES = {"N": 256, "K": 1024, "TOKENS": 16, "ROWS": 64, "BLOCK": 128, "PDL": False}
KERNELS = {
    "linear": (
        "_linear_batched_kernel",
        {name: type for name, type in TYPES.items() if name != "partial_ptr"} | {"eps": "fp32"},
        {"BATCH": 16, "WIDENED": False, "WORDS": False},
    ),
    "split_k_gemm": (
        "_split_k_gemm_kernel",
        TYPES | {"counter_ptr": "*i32", "M": "i32"},
        {"SPLITS": 2},
    ),
}


@pytest.mark.parametrize("capability", [89, 90, 120])
@pytest.mark.parametrize("operation", KERNELS)
def test_sums_of_fp8_blocks_are_added_outside_the_tensor_cores(
    operation: str, capability: int, tmp_path: Path
) -> None:
    """Every product on the tensor cores begins with zeros, not with the sum of earlier blocks."""
    kernel, types, constants = KERNELS[operation]
    given = json.dumps([operation, kernel, capability, types, SIZES | constants])
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, given],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    begun = re.findall(r"(?:tt\.dot|warp_group_dot) %\S+, %\S+, (%\w+)", done.stdout)
    assert begun
    for one in begun:
        assert f"{one} = arith.constant dense<0.000000e+00>" in done.stdout
