"""Families of ops by name."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.names.rules import FAMILIES, kernel_meaning
from decodescope.analyzer.timing.timeline import families_of
from decodescope.analyzer.trace import KERNEL, MEMCPY, GpuOps

NAMES = ("nvjet_tst_64x8", "flash_fwd_kernel", "silu_kernel", "void whatever()")


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "matmul"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm>", "matmul"),
        ("aten::addmm", "matmul"),
        ("Cijk_Alik_Bljk_BBS_BH", "matmul"),
        ("flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm80_flash_fprop", "attention"),
        ("void at::native::reduce_kernel<512, 1, MeanOps<float>>", "reduction"),
        ("triton_red_fused_mean_0", "reduction"),
        (
            "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
            "elementwise",
        ),
        ("triton_poi_fused_add_cos_sin_0", "elementwise"),
        ("triton_red_fused__to_copy_embedding_mean_pow_0", "reduction"),
        ("triton_per_fused_mean_mul_rsqrt_2", "reduction"),
        ("triton_red_fused__to_copy_mm_5", "matmul"),
        ("triton_tem_fused_addmm_3", "matmul"),
        (
            "triton_poi_fused__scaled_dot_product_cudnn_attention_cat_cos_mul_neg_sin_4",
            "elementwise",
        ),
        ("triton_poi_fused__to_copy_silu_1", "elementwise"),
        ("triton_poi_fused_index_copy_transpose_view_7", "copy"),
        ("triton_poi_fused_add_relu_1", "elementwise"),
        ("unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "copy"),
        ("CatArrayBatchedCopy<OpaqueType<2u>>", "copy"),
        ("vllm::rotary_embedding_kernel<bf16>", "elementwise"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("_norm_qkv_rope_kernel", "matmul"),
        ("_norm_gate_up_batched_kernel", "matmul"),
        ("_norm_head_kernel", "matmul"),
        ("_linear_residual_kernel", "matmul"),
        ("_linear_batched_kernel", "matmul"),
        ("_decode_attention_kernel", "attention"),
        ("_rms_norm_residual_kernel", "reduction"),
        ("_rms_norm_integers_kernel", "reduction"),
        ("_rms_norm_pairs_kernel", "reduction"),
        ("_quantize_rows_kernel", "reduction"),
        ("_dequantize_rows_kernel", "elementwise"),
        ("mystery", "other"),
    ],
)
def test_families_by_name(name, family):
    assert kernel_meaning(name).family == family


@given(
    st.lists(
        st.tuples(st.integers(0, len(NAMES) - 1), st.sampled_from([KERNEL, MEMCPY])), min_size=1
    )
)
def test_the_family_of_an_op_is_that_of_its_name_but_copies_are_copies(rows):
    name, kind = np.array(rows).T
    none = np.full(len(rows), -1)
    columns = dict.fromkeys((field.name for field in fields(GpuOps)), none)
    ops = GpuOps(**{**columns, "name": name, "kind": kind})
    for family, (number, kind) in zip(families_of(NAMES, ops), rows, strict=True):
        copies = kind == MEMCPY
        assert FAMILIES[family] == ("copy" if copies else kernel_meaning(NAMES[number]).family)
