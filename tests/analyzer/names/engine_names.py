"""Names of kernels as libraries and engines write them, and what decodescope says of each.

A name is that of a trace, a test or a source file of the project in the column `source`, with long
template arguments cut.
"""

from typing import NamedTuple


class EngineName(NamedTuple):
    """A kernel's name, where it comes from, and what it says."""

    source: str
    name: str
    short: str
    kind: str
    family: str
    operation: str | None = None
    communication: str | None = None


ENGINE_NAMES = (
    EngineName(
        "cuBLAS",
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
        "nvjet tst 64x8 splitK",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "nvjet tst 192x192",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN",
        "nvjet tst 64x64x128",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_e"
        "xecute_segment_k_off_kernel__5x_cublas",
        "cublas bf16 128x128x64",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x64_stage3_warpsize2x2x1_t"
        "ensor16x8x32_execute_kernel__5x_cublas",
        "cublas e4m3 64x64x64",
        "product",
        "matmul",
    ),
    EngineName(
        "TensorRT",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize192x128x32_stage3_warpsize4x2x1_te"
        "nsor16x8x16_kernel",
        "xmma f16 192x128x32",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
        "ampere bf16 s16816gemm 128x256 tn",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_t"
        "n_align8>(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8::Pa"
        "rams)",
        "cutlass bf16 s16816gemm 64x64x64 tn",
        "product",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __n"
        "v_bfloat16, false, float, __nv_bfloat16, __nv_bfloat16, true, false, false, fals"
        "e>(cublasLt::cublasSplitKParams<float>)",
        "splitKreduce",
        "product_tail",
        "matmul",
    ),
    EngineName(
        "cuBLAS",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bflo"
        "at16, __nv_bfloat16, float>(cublasGemvParams)",
        "gemvx bf16",
        "product",
        "matmul",
    ),
    EngineName(
        "hipBLASLt",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x256_MI16x16x1_SN_LDSB1_AFC1",
        "Cijk BBS 16x16x256",
        "product",
        "matmul",
    ),
    EngineName(
        "DeepGEMM",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0u, 5120u, 17408u,"
        " 1u>(float*)",
        "deep_gemm sm90_fp8_gemm_1d2d",
        "product",
        "matmul",
    ),
    EngineName(
        "DeepGEMM",
        "void deep_gemm::sm90_fp8_paged_mqa_logits<1u, 64u>",
        "deep_gemm sm90_fp8_paged_mqa_logits",
        "attention",
        "attention",
    ),
    EngineName(
        "TensorRT-LLM",
        "bmm_E4m3_E4m3E4m3_Fp32_t128x16x128u2_s6_et64x16_m64x16x32_c1x1x1_rM_TN_transOut_"
        "noShfl_dsFp8_schPd4x2x2x3_bN_tma_tmaSf_rgTma_clmp_lbW2_dynB_sm100f",
        "bmm E4m3E4m3 128x16x128",
        "unknown",
        "matmul",
    ),
    EngineName(
        "vLLM",
        "void cutlass::device_kernel<vllm::cutlass_3x_gemm_fp8_blockwise<cutlass::bfloat1"
        "6_t, (int)1, (int)128>>(T1)",
        "cutlass_3x_gemm_fp8_blockwise",
        "product",
        "matmul",
    ),
    EngineName(
        "Marlin",
        "void marlin::Marlin<__nv_bfloat16, 1125899906843652l, 256, 1, 8, 8, true, 4, 8, "
        "false>(int4 const*)",
        "Marlin",
        "product",
        "matmul",
    ),
    EngineName(
        "FlashAttention 3",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
        "flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<"
        "1> >, cute::tuple<cute::C<128>, cute::C<176>, cute::C<128> >, 128, cutlass::bflo"
        "at16_t, float, cutlass::arch::Sm90, true>>>>(T1::Params)",
        "FlashAttnFwd sm90 hd128",
        "attention",
        "attention",
    ),
    EngineName(
        "FlashAttention 3",
        "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, c"
        "ute::C<128>>, 4, 256, 1, false, cutlass::bfloat16_t, float, cutlass::arch::Sm90>"
        ">(T1::Params)",
        "FlashAttnFwdCombine",
        "attention",
        "attention",
    ),
    EngineName(
        "FlashAttention 2",
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, fa"
        "lse, false, cutlass::bfloat16_t, Flash_kernel_traits<128, 64, 128, 4, cutlass::b"
        "float16_t>>, false>(flash::Flash_fwd_params)",
        "flash_fwd_splitkv hd128",
        "attention",
        "attention",
    ),
    EngineName(
        "FlashMLA",
        "void sm100::decode::head64::flash_fwd_splitkv_mla_fp8_sparse_kernel<sm100::decod"
        "e::head64::KernelTemplate<(x)0>>(p)",
        "flash_fwd_splitkv_mla_fp8_sparse",
        "attention",
        "attention",
    ),
    EngineName(
        "FlashInfer",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)"
        "0, (unsigned int)2, flashinfer::DefaultAttention<(bool)0>, Params>(T9)",
        "BatchDecodeWithPagedKVCache",
        "attention",
        "attention",
    ),
    EngineName(
        "TensorRT-LLM",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H64PagedKvCausalP64VarSeqQ128Kv128PersistentContext",
        "fmha sm100 bf16 hd64",
        "attention",
        "attention",
    ),
    EngineName(
        "cuDNN",
        "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64_4x1x1"
        "_cga1x1x1_kernel0_0",
        "cudnn sdpa sm80 64x64x64",
        "attention",
        "attention",
    ),
    EngineName(
        "vLLM",
        "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128,"
        " (vllm::Fp8KVCacheDataType)0, false, 512>(float*)",
        "paged_attention_v2",
        "attention",
        "attention",
    ),
    EngineName(
        "vLLM",
        "kernel_unified_attention_2d",
        "kernel_unified_attention_2d",
        "attention",
        "attention",
    ),
    EngineName(
        "vLLM",
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16, (vllm:"
        ":Fp8KVCacheDataType)0>(__hip_bfloat16 const*)",
        "reshape_and_cache_flash",
        "kv_write",
        "copy",
    ),
    EngineName(
        "vLLM",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "rotary_embedding",
        "rope",
        "elementwise",
    ),
    EngineName(
        "vLLM",
        "std::enable_if<((8) > (0)) && vllm::_typeConvert<c10::BFloat16>::exists, void>::"
        "type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFlo"
        "at16*, float)",
        "fused_add_rms_norm",
        "norm",
        "reduction",
    ),
    EngineName(
        "FlashInfer",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        "FusedAddRMSNorm",
        "norm",
        "reduction",
    ),
    EngineName(
        "Composable Kernel",
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdIDF16bfLin3EEEEEvDpT1_",
        "Rmsnorm2dFwd",
        "norm",
        "reduction",
    ),
    EngineName(
        "vLLM",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel<c10::BFloat16>, "
        "(bool)1>(T1 *, const T1 *, int)",
        "act_and_mul silu",
        "activation",
        "elementwise",
    ),
    EngineName(
        "vLLM",
        "fused_moe_kernel",
        "fused_moe",
        "expert",
        "matmul",
    ),
    EngineName(
        "vLLM",
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>(float const*)",
        "topkGatingSoftmax",
        "routing",
        "reduction",
    ),
    EngineName(
        "Triton kernels",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
        "matmul_ogs bf16xbf16xmxfp4 16x128x256 swiglu",
        "expert",
        "matmul",
    ),
    EngineName(
        "Triton kernels",
        "_topk_forward",
        "topk_forward",
        "routing",
        "reduction",
    ),
    EngineName(
        "SGLang",
        "_per_token_group_quant_fp8",
        "per_token_group_quant_fp8",
        "quantise",
        "reduction",
    ),
    EngineName(
        "NCCL since 2.19",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclAllReduce ring",
        "communication",
        "communication",
        "all_reduce",
        "NCCL/RCCL",
    ),
    EngineName(
        "NCCL before 2.19",
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclAllReduce ring",
        "communication",
        "communication",
        "all_reduce",
        "NCCL/RCCL",
    ),
    EngineName(
        "NCCL, symmetric memory",
        "ncclSymkDevKernel_AllGather_STMC",
        "ncclSymkAllGather",
        "communication",
        "communication",
        "all_gather",
        "NCCL/RCCL",
    ),
    EngineName(
        "vLLM",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "cross_device_reduce_1stage",
        "communication",
        "communication",
        "all_reduce",
        "custom collective",
    ),
    EngineName(
        "FlashInfer",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lampor"
        "t<(flashinfer::trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16,"
        " 2, true, true>(x)",
        "allreduce_fusion_kernel_oneshot_lamport",
        "communication",
        "communication",
        "all_reduce",
        "custom collective",
    ),
    EngineName(
        "DeepEP",
        "void deep_ep::internode_ll::dispatch<(bool)1, (bool)1, (int)6144>(void *, void *, int *)",
        "ep dispatch internode_ll",
        "communication",
        "communication",
        "all_to_all",
        "expert exchange",
    ),
    EngineName(
        "mori",
        "EpCombineLowLatencyKernel",
        "ep combine LowLatency",
        "communication",
        "communication",
        "all_to_all",
        "expert exchange",
    ),
    EngineName(
        "Kineto",
        "Memcpy PtoP (Device -> Device)",
        "Memcpy PtoP",
        "communication",
        "communication",
        "send_recv",
        "copy between GPUs",
    ),
    EngineName(
        "Kineto",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy HtoD pageable",
        "copy",
        "copy",
    ),
    EngineName(
        "ROCm",
        "__amd_rocclr_fillBufferAligned.kd",
        "amd_rocclr_fillBufferAligned",
        "copy",
        "copy",
    ),
    EngineName(
        "PyTorch",
        "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10:"
        ":BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor"
        "<float> >, std::array<char*, 3ul> >(int)",
        "elementwise mul bf16",
        "multiply",
        "elementwise",
    ),
    EngineName(
        "PyTorch",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_"
        "add<float>, std::array<char*, 2ul> >(int)",
        "elementwise add f32",
        "elementwise",
        "elementwise",
    ),
    EngineName(
        "PyTorch",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::n"
        "ative::ArgMaxOps<float>, unsigned int, long, 4, 4> >(x)",
        "reduce argmax bf16",
        "sampling",
        "reduction",
    ),
    EngineName(
        "PyTorch",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(x)",
        "gatherTopK",
        "routing",
        "reduction",
    ),
    EngineName(
        "Inductor",
        "triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0",
        "triton: add_embedding_mean_mul_pow_rsqrt",
        "norm",
        "reduction",
    ),
    EngineName(
        "Inductor",
        "triton_poi_fused__unsafe_view_mul_silu_8",
        "triton: mul_silu",
        "activation",
        "elementwise",
    ),
    EngineName(
        "decodescope",
        "_norm_qkv_rope_kernel",
        "norm_qkv_rope",
        "product",
        "matmul",
    ),
    EngineName(
        "decodescope",
        "_decode_attention_kernel",
        "decode_attention",
        "attention",
        "attention",
    ),
    EngineName(
        "PyTorch on a CPU",
        "aten::addmm",
        "aten::addmm",
        "product",
        "matmul",
    ),
)
