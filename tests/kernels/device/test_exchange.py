"""What Triton makes of an exchange for a GPU."""

import math
import re
from collections import Counter

import pytest

from tests.helpers.gpu_code import Asked, gpu_code

TYPES = {
    "x_ptr": "*fp32",
    "residual_ptr": "*bf16",
    "keys_ptr": "*i64",
    "tokens_ptr": "*i64",
    "position_ptr": "*i32",
    "slots_ptr": "*i32",
    "peers_ptr": "*i64",
    "turns_ptr": "*i32",
    "patience_ptr": "*i64",
    "missing_ptr": "*i32",
    "capacity": "i32",
}
ALIGNED = ("x_ptr", "residual_ptr", "keys_ptr", "slots_ptr", "peers_ptr")
MODULES = {
    "_all_reduce_residual_kernel": "decodescope.kernels.ops.all_reduce_residual",
    "_all_reduce_choice_kernel": "decodescope.kernels.ops.all_reduce_choice",
}
SIZES = [(2, 32), (2, 512), (8, 32)]
POINTERS = {
    "x_ptr": "*bf16",
    "w_ptr": "*bf16",
    "residual_ptr": "*fp32",
    "partial_ptr": "*fp32",
    "counter_ptr": "*i32",
    "peers_ptr": "*i64",
    "turns_ptr": "*i32",
}
# Batch, ranks, rows of a program.
PUSHES = [(1, 2, 1), (1, 2, 8), (1, 8, 4), (1, 2, 64), (4, 2, 16)]


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    """The PTX of both kernels, for each number of ranks and lanes."""
    asked = {}
    for ranks, lanes in SIZES:
        constants = {
            "N": 128 * lanes,
            "RANK": 1,
            "RANKS": ranks,
            "PIECES": 32 * lanes,
            "LANES": lanes,
            "ROUNDS": 1,
            "ADDS": True,
            "PUSHED": False,
            "PDL": True,
            "BATCH": 64,
        }
        for kernel, module in MODULES.items():
            asked[f"{kernel} {ranks} {lanes}"] = Asked(
                module,
                kernel,
                TYPES,
                constants,
                ALIGNED,
                options={"num_warps": lanes // 32},
            )
    return gpu_code("ptx", asked | pushing())


@pytest.fixture(scope="module")
def layouts() -> dict[str, str]:
    """The code of the kernels that push, with the layouts of their tensors."""
    return gpu_code("ttgir", pushing())


def pushing() -> dict[str, Asked]:
    asked = {}
    for batch, ranks, rows in PUSHES:
        constants = {
            "N": 512,
            "BATCH": batch,
            "TOKENS": 16,
            "K": 64,
            "LAYOUT": (64, None),
            "ROWS": rows,
            "BLOCK": 64,
            "AHEAD": 1,
            "SPLITS": 1,
            "ADDS": False,
            "WORDS": False,
            "PDL": True,
            "MESSAGE": (1, ranks, batch, 512, 128 * batch, 128),
        }
        kernel = "_linear_residual_kernel" if batch == 1 else "_linear_residual_batched_kernel"
        asked[f"push {batch} {ranks} {rows}"] = Asked(
            "decodescope.kernels.ops.linear_residual",
            kernel,
            POINTERS,
            constants,
            tuple(POINTERS),
            options={"num_warps": 4},
        )
    return asked


@pytest.mark.parametrize(("ranks", "lanes"), SIZES)
@pytest.mark.parametrize("kernel", MODULES)
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
    batch: int, ranks: int, rows: int, compiled: dict[str, str], layouts: dict[str, str]
) -> None:
    code = compiled[f"push {batch} {ranks} {rows}"]
    counted = Counter(re.findall(r"\b(?:ld|st)\.relaxed\.sys[.\w]*", code))
    store = "st.relaxed.sys.global." + ("v4.b32" if rows >= 4 else "b32")
    assert counted == {store: ranks - 1}
    assert copies_of_stored(layouts[f"push {batch} {ranks} {rows}"]) == [1] * (ranks - 1)
    assert not re.search(r"\b(?:ld|st)\.local", code)
    before, _, after = code.partition("griddepcontrol.wait")
    # The addresses of the slots, but no turn.
    assert before.count("ld.global.b64") == ranks - 1
    assert "ld.global.b32" not in before
    assert "ld.global.b32" in after
