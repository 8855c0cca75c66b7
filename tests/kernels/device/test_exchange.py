"""What Triton makes of an exchange for a GPU, compiled in a process of its own: there the kernels
are compiled even if they are interpreted here."""

import json
import math
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

COMPILE = """
import json, sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from decodescope.kernels.ops.all_reduce_choice import _all_reduce_choice_kernel
from decodescope.kernels.ops.all_reduce_residual import _all_reduce_residual_kernel
from decodescope.kernels.ops.linear_residual import (
    _linear_residual_batched_kernel,
    _linear_residual_kernel,
)

types = {
    "x_ptr": "*fp32", "residual_ptr": "*bf16", "keys_ptr": "*i64", "tokens_ptr": "*i64",
    "position_ptr": "*i32", "slots_ptr": "*i32", "peers_ptr": "*i64", "turns_ptr": "*i32",
    "patience_ptr": "*i64", "missing_ptr": "*i32", "capacity": "i32",
}
aligned = ("x_ptr", "residual_ptr", "keys_ptr", "slots_ptr", "peers_ptr")
made = {}
for ranks, lanes in json.loads(sys.argv[1]):
    constants = {
        "N": 128 * lanes, "RANK": 1, "RANKS": ranks, "PIECES": 32 * lanes, "LANES": lanes,
        "ROUNDS": 1, "ADDS": True, "PUSHED": False, "PDL": True, "BATCH": 64,
    }
    for kernel in (_all_reduce_residual_kernel, _all_reduce_choice_kernel):
        names = kernel.arg_names
        signature = {name: types.get(name, "constexpr") for name in names}
        own = {name: value for name, value in constants.items() if name in names}
        places = [names.index(name) for name in aligned if name in names]
        hints = {(place,): [["tt.divisibility", 16]] for place in places}
        source = ASTSource(kernel, signature, own, hints)
        options = {"num_warps": lanes // 32}
        compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        made[f"{kernel.__name__} {ranks} {lanes}"] = compiled.asm["ptx"]
pointers = {
    "x_ptr": "*bf16", "w_ptr": "*bf16", "residual_ptr": "*fp32", "partial_ptr": "*fp32",
    "counter_ptr": "*i32", "peers_ptr": "*i64", "turns_ptr": "*i32",
}
for batch, ranks, rows in json.loads(sys.argv[2]):
    constants = {
        "N": 512, "BATCH": batch, "TOKENS": 16, "K": 64, "LAYOUT": (64, None), "ROWS": rows,
        "BLOCK": 64, "AHEAD": 1, "SPLITS": 1, "ADDS": False, "WORDS": False, "PDL": True,
        "MESSAGE": (1, ranks, batch, 512, 128 * batch, 128),
    }
    kernel = _linear_residual_kernel if batch == 1 else _linear_residual_batched_kernel
    names = kernel.arg_names
    signature = {name: pointers.get(name, "constexpr") for name in names}
    own = {name: constants.get(name) for name in names if name not in pointers}
    hints = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(kernel, signature, own, hints)
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    made[f"push {batch} {ranks} {rows}"] = compiled.asm["ptx"]
    made[f"layouts {batch} {ranks} {rows}"] = compiled.asm["ttgir"]
print(json.dumps(made))
"""
SIZES = [(2, 32), (2, 512), (8, 32)]
# Batch, ranks, rows of a program.
PUSHES = [(1, 2, 1), (1, 2, 8), (1, 8, 4), (1, 2, 64), (4, 2, 16)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The PTX of all kernels, for each number of ranks and lanes or rows."""
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(SIZES), json.dumps(PUSHES)],
        env=environment | {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made: dict[str, str] = json.loads(done.stdout)
    return made


@pytest.mark.parametrize(("ranks", "lanes"), SIZES)
@pytest.mark.parametrize("kernel", ["_all_reduce_residual_kernel", "_all_reduce_choice_kernel"])
def test_words_are_moved_16_bytes_at_a_time(
    kernel: str, ranks: int, lanes: int, compiled: dict[str, str]
) -> None:
    code = compiled[f"{kernel} {ranks} {lanes}"]
    counted = Counter(re.findall(r"\b(?:ld|st)\.relaxed\.sys[.\w]*", code))
    others = ranks - 1
    # To push and to clear; to look and to look again.
    assert counted == {
        "st.relaxed.sys.global.v4.b32": 2 * others,
        "ld.relaxed.sys.global.v4.b32": 2 * others,
    }
    assert not re.search(r"\b(?:ld|st)\.local", code)
    before, _, after = code.partition("griddepcontrol.wait")
    assert "relaxed.sys" not in before
    # No kernel writes the addresses of the others' slots.
    assert before.count("ld.global.b64") == others
    assert "griddepcontrol.launch_dependents" in before
    if lanes == 32:
        # One warp has no need of shared memory.
        assert ".shared" not in re.sub(r"\.extern \.shared.*", "", code)
    if "residual" in kernel:
        assert re.search(r"ld\.global\.v4\.b32", after)


def copies_of_stored(code: str) -> list[int]:
    """How many threads have each element of the tensors that are pushed, from Triton's code."""
    layouts = dict(re.findall(r"^(#\w+) = (.*)$", code, re.M))
    copies = []
    for shape, layout in re.findall(r"st\.relaxed.*-> tensor<([x\d]+)xi32, (#\w+)>", code):
        covers = re.findall(r"(?:PerThread|PerWarp|PerCTA) = \[(\d+), (\d+)\]", layouts[layout])
        covered = [math.prod(map(int, each)) for each in zip(*covers, strict=True)]
        sizes = map(int, shape.split("x"))
        pairs = zip(covered, sizes, strict=True)
        copies.append(math.prod(max(1, held // size) for held, size in pairs))
    return copies


@pytest.mark.parametrize(("batch", "ranks", "rows"), PUSHES)
def test_sums_are_pushed_by_one_thread_each(
    batch: int, ranks: int, rows: int, compiled: dict[str, str]
) -> None:
    code = compiled[f"push {batch} {ranks} {rows}"]
    counted = Counter(re.findall(r"\b(?:ld|st)\.relaxed\.sys[.\w]*", code))
    store = "st.relaxed.sys.global." + ("v4.b32" if rows >= 4 else "b32")
    assert counted == {store: ranks - 1}
    layouts = compiled[f"layouts {batch} {ranks} {rows}"]
    assert copies_of_stored(layouts) == [1] * (ranks - 1)
    assert not re.search(r"\b(?:ld|st)\.local", code)
    before, _, after = code.partition("griddepcontrol.wait")
    # The addresses of the slots, but no turn.
    assert before.count("ld.global.b64") == ranks - 1
    assert "ld.global.b32" not in before
    assert "ld.global.b32" in after
