"""Communication: recognised by name, and its time against a count of every nanosecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze
from decodescope.analyzer.names.rules import kernel_meaning
from decodescope.analyzer.schema.report import DeviceReport
from tests.helpers.kineto_events import op, trace_of

KINDS = {
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "NCCL/RCCL",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": "NCCL/RCCL",
    "ncclSymkDevKernel_AllGather_STMC": "NCCL/RCCL",
    "ncclDevKernel_Generic_1": "NCCL/RCCL",
    "mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)": "NCCL/RCCL",
    "void mscclpp::collective::allreducePacket<__half>()": "MSCCL++",
    "void nvshmemi_proxy_quiet_entrypoint": "NVSHMEM",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)": "expert exchange",
    "void deep_ep::internode_ll::combine<true, 3, 7168>(void*)": "expert exchange",
    "EpDispatchIntraNodeKernel_bf16": "expert exchange",
    "EpCombineLowLatencyKernel": "expert exchange",
    "moeA2ADispatchKernel": "expert exchange",
    "a2a_combine_recv_kernel": "expert exchange",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)":
        "custom collective",
    "aiter::reduce_scatter_cross_device_store<bf16,8>": "custom collective",
    "void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<__half>>":
        "custom collective",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>":
        "custom collective",
    "void flashinfer::trtllm_mnnvl_allreduce::rmsNormLamport<2>": "custom collective",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>":
        "custom collective",
    "all_reduce_one_shot_push_kernel<__nv_bfloat16, 8u, true>": "custom collective",
    "c10d::symmetric_memory::wait_signal_kernel(unsigned int**, int)": "custom collective",
    "userbuffers_fp16_sum_inplace_gpu_rw_ag": "custom collective",
    "Memcpy PtoP (Device -> Device)": "copy between GPUs",
    "[CUDA memcpy PtoP]": "copy between GPUs",
}  # fmt: skip
LOCAL = (
    "void at::native::reduce_kernel<512, 1, MeanOps<float>>",
    "void deep_ep::layout::get_dispatch_layout<256, 4, 8>(long const*)",
    "void softmax<blockAllReduceSum, WarpAllReduce<MaxOp>>",
    "at::native::type_specialized_broadcast_kernel_launcher<1>",
    "void cutlass::gemm::kernel::GemmAllReduce<cutlass_90>",
    "_scatter_gather_elementwise_kernel",
    "aiter::local_device_load_rmsnorm_512n",
    "Memcpy DtoD (Device -> Device)",
)


@pytest.mark.parametrize("name", [*KINDS, *LOCAL])
def test_communication_is_recognised_by_name(name: str) -> None:
    assert kernel_meaning(name).communication == KINDS.get(name)
    assert (kernel_meaning(name).family == "communication") == (name in KINDS)


NAMES = ("ncclDevKernel_AllReduce", "cross_device_reduce_1stage", "nvjet_tst", "mystery")
# Kernels of no length are left out where others have one (`invalid_kernel_times`).
OPS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from(NAMES), st.integers(7, 9)),
    min_size=1,
    max_size=14,
    unique_by=lambda op: (op[0], op[3]),
)


@given(OPS)
def test_communication_times_are_those_of_a_count_of_every_nanosecond(
    ops: list[tuple[int, int, str, int]],
) -> None:
    events = [
        op(begin, begin + length, name=name, stream=stream) for begin, length, name, stream in ops
    ]
    (device,) = analyze(trace_of(*events)).report.devices
    # Of a stream the first to start; those behind it wait.
    running = [
        set(
            {
                stream: name
                for begin, length, name, stream in sorted(ops, reverse=True)
                if begin <= ns < begin + length
            }.values()
        )
        for ns in range(100)
    ]
    shared, local = set(NAMES[:2]), set(NAMES[2:])
    assert device.communication_ns == sum(bool(now & shared) for now in running)
    assert device.exposed_communication_ns == sum(
        bool(now & shared) and not now & local for now in running
    )
    used = {name for _, _, name, _ in ops}
    assert device.communication == {
        kind: sum(name in now for now in running)
        for name, kind in zip(NAMES, ("NCCL/RCCL", "custom collective"), strict=False)
        if name in used
    }
    assert list(device.communication.values()) == sorted(
        device.communication.values(), reverse=True
    )


def test_each_device_has_its_own_communication() -> None:
    """A copy between GPUs counts; what runs on another device covers nothing here."""

    def copy(device: int) -> dict[str, object]:
        name = "Memcpy PtoP (Device -> Device)"
        return op(10, 30, name=name, cat="gpu_memcpy", device=device, stream=8)

    report = analyze(
        trace_of(op(0, 20), copy(0), op(0, 10, device=1), copy(1), op(5, 50, device=2))
    ).report

    def times(device: DeviceReport) -> tuple[int, int]:
        return device.communication_ns, device.exposed_communication_ns

    assert [times(device) for device in report.devices] == [(20, 10), (20, 20), (0, 0)]
    assert report.devices[2].communication == {}


def test_a_collective_launched_early_communicates_when_the_kernel_before_it_has_ended() -> None:
    names = ("down", "all_reduce_residual", "gate_up")
    ops = zip(names, (0, 2, 22), (20, 25, 60), strict=True)
    (device,) = analyze(trace_of(*(op(a, b, name=name) for name, a, b in ops))).report.devices
    assert (device.communication_ns, device.exposed_communication_ns) == (5, 5)
