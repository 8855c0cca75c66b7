"""The table of rules, and a user's own."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.rules import KINDS, kernel_meaning, rules_with


# Names as engines and libraries write them, and what they compute.
@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            "product",
            "nvjet_tst_128x64 cutlass::Kernel2<gemm> Cijk_Alik_Bljk_HHS gemvx::kernel "
            "triton_mm _gemm_a16w16_kernel marlin::Marlin machete_gemm awq_gemm_kernel",
        ),
        (
            "attention",
            "flash_fwd_splitkv_kernel fmha_cutlassF paged_attention_v2_kernel "
            "kernel_unified_attention_2d reduce_segments flash_mla BatchDecodeWithPaged "
            "fmhaSm100Kernel merge_attn_states_kernel _fwd_grouped_kernel_stage1",
        ),
        (
            "norm",
            "vllm::fused_add_rms_norm_kernel RMSNormKernel layer_norm_kernel "
            "flashinfer::norm::FusedAddRMSNormKernel",
        ),
        ("rope", "vllm::rotary_embedding_kernel BatchQKApplyRotaryPosIdsCosSinCacheKernel"),
        (
            "kv_write",
            "vllm::reshape_and_cache_flash_kernel concat_and_cache_mla_kernel "
            "set_mla_kv_buffer_kernel store_kv_cache",
        ),
        ("activation", "vllm::act_and_mul_kernel silu_and_mul_kernel act_and_mul_kernel<silu>"),
        (
            "expert",
            "fused_moe_kernel _matmul_ogs_NNT_bf16 moe_align_block_size_kernel "
            "cutlass_moe_mm_groupedGemm finalizeMoeRoutingKernel",
        ),
        ("routing", "vllm::moe::topkGatingSoftmax _topk_forward grouped_topk_fused_kernel"),
        ("quantise", "per_token_group_quant_8bit_kernel dynamic_per_token_scaled_fp8_quant_kernel"),
        ("communication", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL cross_device_reduce_1stage"),
    ],
)
def test_names_of_engines_are_known(kind: str, names: str) -> None:
    assert {name: kernel_meaning(name).kind for name in names.split()} == dict.fromkeys(
        names.split(), kind
    )


def test_a_rule_of_the_users_precedes(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[rule]]\npattern = 'flash'\nkind = 'product'\nrole = 'o'\n")
    own, bundled = map(rules_with(path).meaning, ("my_FLASH_thing", "silu"))
    assert (own.kind, own.letter, own.role) == ("product", KINDS["product"], "o")
    assert (bundled.kind, bundled.letter) == ("activation", KINDS["activation"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not toml [", "no TOML"),
        pytest.param("a = " + "[" * 100_000, "no TOML", id="too deep"),
        ("", "must hold"),
        ("rule = 3", "must hold"),
        ("[[rule]]\npattern = 'a'\nkind = 'norm'\n[other]\nx = 1\n", "must hold"),
        ("[[rule]]\nkind = 'norm'\n", "rule 1: has the keys"),
        ("[[rule]]\npattern = 'a'\nkind = 'norm'\nweight = 3\n", "rule 1: has the keys"),
        ("[[rule]]\npattern = 'a'\nkind = 'nrom'\n", "kind 'nrom' is none of product,"),
        ("[[rule]]\npattern = 'a'\nkind = ['norm']\n", "is none of"),
        ("[[rule]]\npattern = 'a'\nkind = 'norm'\nrole = 'x'\n", "role 'x' is none of qkv,"),
        ("[[rule]]\npattern = 3\nkind = 'norm'\n", "pattern is a text"),
        ("[[rule]]\npattern = ''\nkind = 'norm'\n", "pattern is a text"),
        ("[[rule]]\npattern = '(a'\nkind = 'norm'\n", "no regular expression"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=r"^[^\n]+$") as error:
        rules_with(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("data", [None, b"\xff\xfe"])
def test_an_unreadable_file_is_one_line(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "mine.toml"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as rules"):
        rules_with(path)


def test_only_permutations_of_experts_are_experts() -> None:
    names = ("permute_kernel", "moe_permute_kernel", "unpermute_kernel", "scale::finalizeKernel")
    kinds = [kernel_meaning(name).kind for name in names]
    assert kinds == ["unknown", "expert", "expert", "unknown"]
