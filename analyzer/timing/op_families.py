"""The kind of work an op does, by its name, and the kind that fills each column of a step."""

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from decodescope.analyzer.timing.communication import communication_kind
from decodescope.analyzer.timing.step_timeline import StepTimeline
from decodescope.analyzer.trace import MEMCPY, MEMSET, GpuOps, Int8s

FAMILIES = (
    *("matmul", "attention", "reduction", "elementwise", "copy"),
    *("communication", "other"),
)

_COPY = FAMILIES.index("copy")
_COMMUNICATION = FAMILIES.index("communication")
_OTHER = FAMILIES.index("other")
_PATTERNS = tuple(
    (FAMILIES.index(family), re.compile(pattern, re.IGNORECASE))
    for family, pattern in (
        # The name of an Inductor kernel lists the operators it fuses; its prefix says how it loops.
        ("matmul", r"^triton_(red|per|tem)_\w*_(add|b)?mm(_|$)"),
        ("reduction", r"^triton_(red|per)_"),
        ("elementwise", r"^triton_poi_\w*_(mul|div|pow|rsqrt|exp|sigmoid|silu|gelu|tanh|cos|sin)"
                        r"(_|$)"),
        ("attention", r"flash|fmha|attention|attn|sdpa|splitkv|paged|decode_kernel_mha"),
        ("copy", r"memcpy|memset|CatArrayBatchedCopy|direct_copy|copy_|aten::(cat|clone|fill_"
                 r"|zero_|index|slice|contiguous|to\b|select|embedding)|indexSelect|index_(elem|"
                 r"put|copy)|gather|scatter|FillFunctor|(?<!rotary_)embedding|triton_poi_fused_.*(cat|copy)"),
        ("matmul", r"gemm|gemv|nvjet|cutlass|cublas|xmma|Cijk_|matmul|splitK|aten::(mm|bmm|addmm"
                   r"|linear|baddbmm|mv)\b|mkldnn_linear|wgmma|_mm_|dot_kernel"
                   r"|_linear_(residual_)?(batched_)?kernel|_norm_(qkv_rope|gate_up|head)_"),
        ("reduction", r"reduce|norm|softmax|cunn_|argmax|topk|sort|cumsum|scan"
                      r"|aten::(mean|sum|amax|max)\b|MeanOps|_quantize_rows_"),
        ("elementwise", r"elementwise|triton_poi_|silu|gelu|swiglu|rotary|rope|sigmoid|_dequantize_"
                        r"|aten::(mul|add|sub|div|neg|cos|sin|pow|rsqrt|where|exp|sqrt|lt|le|gt|ge|eq)"),
    )
)  # fmt: skip


@lru_cache(maxsize=4096)
def kernel_family(name: str) -> int:
    """The index in `FAMILIES` of "communication" if `name` is of that, else of the first pattern
    that `name` matches."""
    if communication_kind(name) is not None:
        return _COMMUNICATION
    for family, pattern in _PATTERNS:
        if pattern.search(name):
            return family
    return _OTHER


def op_families(timeline: StepTimeline) -> Int8s:
    """The family of each op of a step, an index in `FAMILIES`: int8 [ops]."""
    return families_of(timeline.names, timeline.ops)


def families_of(names: Sequence[str], ops: GpuOps) -> Int8s:
    """The family of each op, whose names index `names`: int8 [ops]."""
    used, place = np.unique(ops.name, return_inverse=True)
    of_name = [kernel_family(names[name]) for name in used]
    families = np.array(of_name, dtype=np.int8)[place]
    local = np.isin(ops.kind, (MEMCPY, MEMSET)) & (families != _COMMUNICATION)
    families[local] = _COPY
    return families
