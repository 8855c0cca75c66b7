"""What Triton makes of products for other GPUs."""

import re

import pytest
import torch

from decodescope.kernels.host.packing import PACKED_FORMATS
from decodescope.kernels.host.weights import narrow_matrix
from tests.helpers.gpu_code import Asked, gpu_code

CAPABILITIES = [89, 90, 120]
TYPES = {"x_ptr": "*fp8e4nv", "w_ptr": "*fp8e4nv", "out_ptr": "*bf16"}
TYPES |= dict.fromkeys(("x_scale_ptr", "scale_ptr", "partial_ptr"), "*fp32")
SIZES = {
    "N": 256,
    "K": 1024,
    "LAYOUT": (1024, None, 0, 0),
    "TOKENS": 16,
    "ROWS": 64,
    "BLOCK": 128,
    "PDL": False,
}
KERNELS = {
    "linear": (
        "decodescope.kernels.ops.linear",
        "_linear_batched_kernel",
        {name: type for name, type in TYPES.items() if name != "partial_ptr"} | {"eps": "fp32"},
        {"BATCH": 16, "WORDS": False, "num_stages": 3},
        CAPABILITIES,
    ),
    "pairs": (
        "decodescope.kernels.ops.linear",
        "_linear_batched_kernel",
        {name: type for name, type in TYPES.items() if name != "partial_ptr"}
        | {"x_ptr": "*u16", "eps": "fp32"},
        {"BATCH": 16, "WORDS": False, "num_stages": 3},
        CAPABILITIES,
    ),
    "split_k_gemm": (
        "benchmarks.gemm.split_k_gemm",
        "_split_k_gemm_kernel",
        TYPES | {"counter_ptr": "*i32", "M": "i32"},
        {"SPLITS": 2},
        CAPABILITIES,
    ),
}
PACKED = {
    name: (
        "decodescope.kernels.ops.experts_down_products",
        "_experts_down_products_kernel",
        {"w_ptr": "*i32", "x_ptr": "*fp16", "logits_ptr": "*bf16", "out_ptr": "*fp32"}
        | ({"scale_ptr": "*fp32"} if packed.row_scaled else {})
        | ({} if packed.e2m1 else {"group_scale_ptr": "*i32"}),
        {"EXPERTS": 8, "FIRST": 0, "CHOSEN": 2, "BATCH": 16, "WORDS": False, "num_stages": 3}
        | {"ROWS": 128, "LAYOUT": narrow_matrix(torch.zeros(8 * 256, 1024), name).layout},
        CAPABILITIES if name == "mxfp4" else [90],
    )
    for name, packed in PACKED_FORMATS.items()
    if name in ("int4", "int4_asym", "mxfp4", "nvfp4")
}
_QKV = ("x", "w", "q_norm", "k_norm", "q", "k", "v")
QKV = {
    "qkv": (
        "decodescope.kernels.ops.norm_qkv_rope_batched",
        "_norm_qkv_rope_batched_kernel",
        dict.fromkeys((f"{name}_ptr" for name in _QKV), "*bf16")
        | dict.fromkeys(("cos_ptr", "sin_ptr", "raw_ptr"), "*fp32")
        | {"position_ptr": "*i32", "counter_ptr": "*i32", "eps": "fp32", "qk_eps": "fp32"}
        | {"capacity": "i32", "table_rows": "i32"},
        {"BATCH": 16, "HEADS": 4, "KV_HEADS": 2, "MATRIX_HEADS": 8, "NORMED_HEADS": 6}
        | {"D": 128, "DISTANCE": 64, "SPLITS": 2, "HALF_BLOCK": 64, "WORDS": False}
        | {"num_stages": 3},
        [90],
    ),
}
# 3 chunks of 32 columns, and 4 in the blocks; the first block is loaded ahead.
INT4_SIZES = {"N": 4, "ROWS": 4, "K": 72, "LAYOUT": (16, "fp16", 32, 0), "AHEAD": 1}
INT4 = {
    "int4 one": (
        "decodescope.kernels.ops.linear",
        "_linear_kernel",
        {"x_ptr": "*bf16", "w_ptr": "*i32", "out_ptr": "*bf16", "eps": "fp32"},
        INT4_SIZES | {"BLOCK": 64},
        [90],
    ),
    "int4 splits": (
        "decodescope.kernels.ops.linear_residual",
        "_linear_residual_kernel",
        {"x_ptr": "*bf16", "w_ptr": "*i32", "residual_ptr": "*bf16"}
        | {"partial_ptr": "*fp32", "counter_ptr": "*i32"},
        INT4_SIZES | {"BLOCK": 32, "SPLITS": 2, "ADDS": False},
        [90],
    ),
}


@pytest.fixture(scope="module")
def compiled() -> dict[str, str]:
    """Triton's code of each kernel for each GPU."""
    asked = {
        f"{operation} {capability}": Asked(
            *(module, kernel, types, SIZES | constants),
            capability=capability,
            options={"num_stages": 3},
        )
        for operation, (module, kernel, types, constants, capabilities) in (
            KERNELS | INT4 | PACKED | QKV
        ).items()
        for capability in capabilities
    }
    return gpu_code("ttgir", asked)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("operation", KERNELS)
def test_sums_of_fp8_blocks_are_added_outside_the_tensor_cores(
    operation: str, capability: int, compiled: dict[str, str]
) -> None:
    """Every product on the tensor cores begins with zeros, not with the sum of earlier blocks."""
    code = compiled[f"{operation} {capability}"]
    begun = re.findall(r"(?:tt\.dot|warp_group_dot) %\S+, %\S+, (%\w+)", code)
    assert begun
    for one in begun:
        assert f"{one} = arith.constant dense<0.000000e+00>" in code


def test_pairs_go_from_shared_memory_to_the_tensor_cores(compiled: dict[str, str]) -> None:
    """Both sides as they are stored, of Hopper."""
    operands = re.findall(r"warp_group_dot .* : (.*) -> ", compiled["pairs 90"])
    assert operands
    for types in operands:
        assert types.count("!ttg.memdesc") == types.count("xf8E4M3FN") == 2


@pytest.mark.parametrize(
    ("name", "capability"), [(name, each) for name, made in PACKED.items() for each in made[-1]]
)
def test_codes_become_operands_in_the_registers_they_arrive_in(
    name: str, capability: int, compiled: dict[str, str]
) -> None:
    """No block of weights passes through shared memory after its words have been read."""
    weights = f"tensor<128x{SIZES['BLOCK']}xf16"
    lines = [line for line in compiled[f"{name} {capability}"].splitlines() if weights in line]
    assert any(f"{weights}, #ttg.dot_op" in line for line in lines)
    assert not [line for line in lines if "convert_layout" in line or "local_alloc" in line]


def test_splits_and_heads_have_a_last_program_each(compiled: dict[str, str]) -> None:
    """Branches of Q/K/V that the interpreter takes with values of any type."""
    code = compiled["qkv 90"]
    assert "tt.get_program_id y" in code
    assert code.count("tt.atomic_rmw add, acq_rel") == 2


@pytest.mark.parametrize("name", ["int4", "int4_asym"])
def test_scales_of_groups_are_copied_ahead(name: str, compiled: dict[str, str]) -> None:
    """Like the codes, to shared memory: a load in the loop would hold back each block."""
    loop = compiled[f"{name} 90"].split("scf.for")[1]
    scales = "tensor<128x1x!tt.ptr<i32>"
    lines = [line for line in loop.splitlines() if scales in line and " : " in line]
    assert any("async_copy_global_to_local" in line for line in lines)
    assert not any("tt.load" in line for line in lines)


@pytest.mark.parametrize(
    ("operation", "masked"), [("int4 one", [False, True]), ("int4 splits", [True] * 2)]
)
@pytest.mark.parametrize(
    ("elements", "shape"), [("i32", "4x\\d+"), ("f16", "4x\\d"), ("bf16", "\\dx8")]
)
def test_blocks_of_4_bits_that_reach_past_the_row_are_masked(
    operation: str, masked: list[bool], elements: str, shape: str, compiled: dict[str, str]
) -> None:
    """Words, scales and x. What lies there is finite by chance."""
    lines = compiled[f"{operation} 90"].splitlines()
    of_these = re.compile(rf"tt\.load (.*) : tensor<{shape}x!tt.ptr<{elements}>")
    loads = [found[1] for line in lines if (found := of_these.search(line))]
    # A pointer, a mask and what stands for the others.
    each = [arguments.count("%") == 3 for arguments in loads]
    assert each == [one for one in masked for _ in range(len(loads) // 2)]
    assert loads
