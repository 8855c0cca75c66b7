"""Communication between devices: which ops do it, and how much of it nothing else covers.

An op communicates if its name says so: a collective or a point-to-point transfer of a library, an
all-reduce of a serving engine, an exchange of tokens between experts, or a copy between two
devices. An op that fuses a collective with a norm or a quantisation counts as communication, since
it waits for the other devices; one that fuses it with a matrix product does not.

Sources of the names: NVIDIA/nccl and ROCm/rccl (nccl*Kernel_*, mscclKernel_*),
microsoft/mscclpp, NVIDIA/nvshmem, ROCm/rocSHMEM, deepseek-ai/DeepEP, ROCm/mori,
perplexityai/pplx-kernels, NVIDIA/TensorRT-LLM (customAllReduceKernels.cu, communicationKernels),
flashinfer-ai/flashinfer (comm), vllm-project/vllm and sgl-project/sglang (custom_all_reduce.cuh,
quick_all_reduce.cuh), ROCm/aiter (custom_all_reduce.cuh), pytorch/pytorch
(CUDASymmetricMemoryOps.cu), NVIDIA/TransformerEngine (userbuffers.cu), Kineto's and Nsight Systems'
names of copies.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from decodescope.analyzer.timing.intervals import union
from decodescope.analyzer.trace import GpuOps, Trace

_KINDS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("expert exchange", r"deep_ep::(?!layout)|hybrid_ep::|pplx::|a2a_(?:dispatch|combine)_"
                            r"|moeA2A|moe_?all_?to_?all|Ep(?:Dispatch|Combine)[A-Z]"),
        ("NVSHMEM", r"nvshmem|rocshmem"),
        ("MSCCL++", r"mscclpp"),
        ("NCCL/RCCL", r"nccl|rccl|mscclKernel"),
        ("custom collective", r"cross_device_(?:reduce|store)|quick_?reduce"
                              r"|(?<!warp)(?<!warp_)(?<!block)(?<!block_)all_?reduce"
                              r"|all_?gather|reduce_?scatter|all_?to_?all|lamport|userbuffers"
                              r"|symmetric_memory::"),
        ("copy between GPUs", r"memcpy PtoP|memcpy peer"),
    )
)  # fmt: skip
_PRODUCT = re.compile(r"gemm|gemv|matmul", re.IGNORECASE)


@lru_cache(maxsize=4096)
def communication_kind(name: str) -> str | None:
    """The kind of communication that an op of this name does, None if it does none."""
    for kind, pattern in _KINDS:
        if pattern.search(name):
            return None if _PRODUCT.search(name) else kind
    return None


@dataclass(frozen=True, slots=True)
class Communication:
    """The communication of one device, in ns.

    `busy_ns` is the union of its ops, `exposed_ns` the part of it in which no other op ran on the
    device, `by_kind` the union of the ops of each kind, the longest first.
    """

    busy_ns: int
    exposed_ns: int
    by_kind: dict[str, int]


def communication(trace: Trace, ops: GpuOps) -> Communication:
    """The communication among `ops`: those of one device, sorted by start.

    exposed_ns = length of the union of all ops - length of the union of the ops that do not
    communicate.
    """
    used, place = np.unique(ops.name, return_inverse=True)
    kinds = [communication_kind(trace.names[name]) for name in used]
    if not any(kinds):
        return Communication(0, 0, {})
    kind = np.array([kind or "" for kind in kinds])[place]

    def busy_ns(chosen: GpuOps) -> int:
        return union(chosen.start_ns, chosen.end_ns).busy_ns

    found = {name: busy_ns(ops.take(kind == name)) for name in dict.fromkeys(kinds) if name}
    return Communication(
        busy_ns=busy_ns(ops.take(kind != "")),
        exposed_ns=busy_ns(ops) - busy_ns(ops.take(kind == "")),
        by_kind=dict(sorted(found.items(), key=lambda item: (-item[1], item[0]))),
    )
