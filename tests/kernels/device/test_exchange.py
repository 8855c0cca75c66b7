"""What Triton makes of an exchange for a GPU, compiled in a process of its own: there the kernels
are compiled even if they are interpreted here."""

import json
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
print(json.dumps(made))
"""
SIZES = [(2, 32), (2, 512), (8, 32)]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The PTX of both kernels, for each number of ranks and lanes."""
    environment = {name: text for name, text in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, json.dumps(SIZES)],
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
