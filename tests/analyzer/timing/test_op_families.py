"""Families of ops by name, and the dominant family of each column against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.timing.op_families import (
    FAMILIES,
    NO_FAMILY,
    dominant_family,
    kernel_family,
)
from decodescope.analyzer.timing.step_timeline import StepTimeline, column_edges
from decodescope.analyzer.trace import KERNEL, MEMCPY

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
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>",
         "elementwise"),
        ("triton_poi_fused_add_cos_sin_0", "elementwise"),
        ("unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "copy"),
        ("CatArrayBatchedCopy<OpaqueType<2u>>", "copy"),
        ("vllm::rotary_embedding_kernel<bf16>", "elementwise"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("mystery", "other"),
    ],
)  # fmt: skip
def test_families_by_name(name, family):
    assert FAMILIES[kernel_family(name)] == family


@st.composite
def timelines(draw):
    length = draw(st.integers(1, 400))
    ops = draw(
        st.lists(
            st.tuples(
                st.integers(0, length),
                st.integers(0, length),
                st.integers(0, len(NAMES) - 1),
                st.sampled_from([KERNEL, MEMCPY]),
            ),
            max_size=12,
        )
    )
    ops = sorted((min(a, b), max(a, b), name, kind) for a, b, name, kind in ops)
    starts, ends, names, kinds = (np.array([op[i] for op in ops], dtype=np.int64) for i in range(4))
    nothing = np.zeros(0, dtype=np.int64)
    return StepTimeline(
        index=0, name="decode_step", device=0, length_ns=length,
        op_starts_ns=starts, op_ends_ns=ends, op_kinds=kinds.astype(np.int8),
        op_names=names.astype(np.int32), op_streams=np.zeros(len(ops), dtype=np.int64),
        gap_starts_ns=nothing, gap_ends_ns=nothing, gap_classes=nothing.astype(np.int8),
        names=NAMES,
    )  # fmt: skip


@given(timelines(), st.integers(1, 50))
def test_the_dominant_family_is_busy_longest(timeline, columns):
    found = dominant_family(timeline, columns)
    edges = column_edges(timeline, columns).tolist()
    for column in range(columns):
        busy = [0] * len(FAMILIES)
        for ns in range(edges[column], edges[column + 1]):
            families = {
                FAMILIES.index("copy") if kind == MEMCPY else kernel_family(NAMES[name])
                for start, end, name, kind in zip(
                    timeline.op_starts_ns, timeline.op_ends_ns, timeline.op_names,
                    timeline.op_kinds, strict=True,
                )
                if start <= ns < end
            }  # fmt: skip
            for family in families:
                busy[family] += 1
        expected = busy.index(max(busy)) if max(busy) else NO_FAMILY
        assert found[column] == expected


def test_no_columns_no_families():
    empty = np.zeros(0, dtype=np.int64)
    nothing = StepTimeline(0, "s", 0, 10, empty, empty, empty.astype(np.int8),
                           empty.astype(np.int32), empty, empty, empty, empty.astype(np.int8),
                           NAMES)  # fmt: skip
    assert dominant_family(nothing, 0).tolist() == []
    assert dominant_family(nothing, 2).tolist() == [NO_FAMILY] * 2
