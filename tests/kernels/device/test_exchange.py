"""What Triton makes of an exchange for a GPU."""

import re
from collections import Counter

import pytest

from tests.helpers.gpu_code import Asked, gpu_code

TYPES = {
    "x_ptr": "*fp32", "residual_ptr": "*bf16", "keys_ptr": "*i64", "tokens_ptr": "*i64",
    "position_ptr": "*i32", "slots_ptr": "*i32", "peers_ptr": "*i64", "turns_ptr": "*i32",
    "patience_ptr": "*i64", "missing_ptr": "*i32", "capacity": "i32",
}  # fmt: skip
ALIGNED = ("x_ptr", "residual_ptr", "keys_ptr", "slots_ptr", "peers_ptr")
MODULES = {
    "_all_reduce_residual_kernel": "decodescope.kernels.ops.all_reduce_residual",
    "_all_reduce_choice_kernel": "decodescope.kernels.ops.all_reduce_choice",
}
SIZES = [(2, 32), (2, 512), (8, 32)]


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    """The PTX of both kernels, for each number of ranks and lanes."""
    asked = {}
    for ranks, lanes in SIZES:
        constants = {
            "N": 128 * lanes, "RANK": 1, "RANKS": ranks, "PIECES": 32 * lanes, "LANES": lanes,
            "ROUNDS": 1, "ADDS": True, "PDL": True, "BATCH": 64,
        }  # fmt: skip
        for kernel, module in MODULES.items():
            asked[f"{kernel} {ranks} {lanes}"] = Asked(
                module, kernel, TYPES, constants, ALIGNED,
                options={"num_warps": lanes // 32},
            )  # fmt: skip
    return gpu_code("ptx", asked)


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
