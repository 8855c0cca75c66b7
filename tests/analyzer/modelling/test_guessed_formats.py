"""Formats of weights by the names of kernels."""

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.guess import narrowed, shown_format
from decodescope.analyzer.modelling.weights import model_weights

LLAMA = read_model_config("llama-3.1-8b")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", None),
        ("nvjet_sm100_qqtst_128x256", "fp8"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", None),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n", "fp8"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x32x256", None),
        ("Cijk_Alik_Bljk_F8BS_BH_Bias_SHB_HA", "fp8"),
        ("_w8a8_block_fp8_matmul", "fp8"),
        ("void marlin::Marlin<__nv_bfloat16, 1125899906842624l>", "int4"),
        ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256", "int4"),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128", "int4"),
    ],
)
def test_formats_of_products(name: str, shown: str | None) -> None:
    found = shown_format([name])
    assert (None if found is None else found.name) == shown


def test_only_parts_whose_kernels_show_it_are_narrower() -> None:
    weights = model_weights(LLAMA)
    kernels = {"qkv": ["gemm_bf16"], "gate_up": ["gemm_e4m3"], "attention": ["flash_fp8"]}
    changed, words = narrowed(weights, kernels)
    assert words == "mlp=fp8,kv=fp8"
    assert (changed.attention.bits, changed.mlp.bits, changed.kv_element_bytes) == (16, 8, 1)
    assert narrowed(weights, {"qkv": ["gemm"]}, element_bytes=2) == (weights, None)
    assert narrowed(weights, {}, element_bytes=1)[1] == "attention=fp8,mlp=fp8,experts=fp8"


def test_no_format_becomes_wider() -> None:
    weights = model_weights(LLAMA, "int4")
    assert narrowed(weights, {"gate_up": ["gemm_e4m3"]}) == (weights, None)


@pytest.mark.parametrize(
    ("types", "element_bytes"),
    [
        ("__nv_bfloat16, (vllm::Fp8KVCacheDataType)0", 2),
        ("uint8_t, (vllm::Fp8KVCacheDataType)1", 1),
    ],
)
def test_caches(types: str, element_bytes: int) -> None:
    name = f"void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, {types}>(...)"
    changed, _ = narrowed(model_weights(LLAMA), {"kv_write": [name]})
    assert changed.kv_element_bytes == element_bytes
