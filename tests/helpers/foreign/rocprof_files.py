"""Hand-made documents of rocprofv3 for tests, with the given records only; times in ns."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CPU, GPU = 900, 901
HSA_CORE, HIP_RUNTIME, MARKER_CORE, MARKER_CONTROL = 1, 5, 7, 8
_OPERATIONS: dict[int, list[str]] = {
    HSA_CORE: ["hsa_queue_create", "hsa_signal_store_screlease"],
    HIP_RUNTIME: ["hipLaunchKernel", "hipMemcpyAsync", "hipGraphLaunch", "hipStreamSynchronize"],
    MARKER_CORE: ["roctxMarkA", "roctxRangePushA", "roctxRangePop", "roctxRangeStartA"],
    MARKER_CONTROL: ["roctxProfilerPause", "roctxProfilerResume"],
}
KERNELS = {7: "void gemm<float>(float*)", 8: "__amd_rocclr_fillBufferAligned"}


class Process:
    """Gathers the records of one process."""

    def __init__(self, pid: int = 100, gpus: int = 1, streams: bool = True) -> None:
        self.pid = pid
        self.streams = streams
        self.agents = [{"id": {"handle": CPU}, "type": 1, "name": "EPYC", "product_name": "EPYC"}]
        self.agents += [
            {
                "id": {"handle": GPU + index},
                "type": 2,
                "name": "gfx942",
                "model_name": "",
                "product_name": "AMD Instinct MI300X",
                "logical_node_type_id": index,
            }
            for index in range(gpus)
        ]
        self.texts: dict[int, str] = {}
        names = ("kernel_dispatch", "hip_api", "hsa_api", "marker_api", "memory_copy", "rccl_api")
        self.records: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    def _add(self, name: str, start: int, end: int, correlation: int, **more: Any) -> None:
        self.records[name].append(
            {
                "size": 1,
                "correlation_id": {"internal": correlation, "external": 0},
                "start_timestamp": start,
                "end_timestamp": end,
                **more,
            }
        )

    def _lane(self, stream: int) -> dict[str, Any]:
        return {"stream_id": {"handle": stream}} if self.streams else {}

    def kernel(
        self,
        start: int,
        end: int,
        correlation: int,
        *,
        kernel: int = 7,
        agent: int = GPU,
        queue: int = 3,
        stream: int = 5,
        threads: tuple[int, int, int] = (64, 1, 1),
        block: tuple[int, int, int] | None = None,
        lds: int | None = None,
    ) -> None:
        info: dict[str, Any] = {
            "agent_id": {"handle": agent},
            "queue_id": {"handle": queue},
            "kernel_id": kernel,
            "grid_size": dict(zip("xyz", threads, strict=True)),
        }
        if block is not None:
            info["workgroup_size"] = dict(zip("xyz", block, strict=True))
        if lds is not None:
            info["group_segment_size"] = lds
        lane = self._lane(stream)
        self._add("kernel_dispatch", start, end, correlation, dispatch_info=info, **lane)

    def copy(
        self,
        start: int,
        end: int,
        correlation: int,
        *,
        source: int = CPU,
        target: int = GPU,
        stream: int = 5,
    ) -> None:
        ends = {"src_agent_id": {"handle": source}, "dst_agent_id": {"handle": target}}
        self._add("memory_copy", start, end, correlation, bytes=8, **ends, **self._lane(stream))

    def call(
        self,
        start: int,
        end: int,
        correlation: int,
        *,
        name: str = "hipLaunchKernel",
        tid: int = 101,
    ) -> None:
        kind = HIP_RUNTIME if name.startswith("hip") else HSA_CORE
        self._call(
            "hip_api" if kind == HIP_RUNTIME else "hsa_api",
            kind,
            name,
            tid,
            start,
            end,
            correlation,
        )

    def marker(
        self,
        start: int,
        end: int,
        correlation: int,
        text: str | None,
        *,
        name: str = "roctxRangePushA",
        tid: int = 101,
    ) -> None:
        if text is not None:
            self.texts[correlation] = text
        kind = MARKER_CORE if text is not None else MARKER_CONTROL
        self._call("marker_api", kind, name, tid, start, end, correlation)

    def _call(self, records: str, kind: int, name: str, tid: int, *times: int) -> None:
        operation = _OPERATIONS[kind].index(name)
        self._add(records, *times, kind=kind, operation=operation, thread_id=tid)

    def data(self, kernels: Mapping[int, str] = KERNELS) -> dict[str, Any]:
        kinds = [
            {"kind": f"KIND_{kind}", "operations": _OPERATIONS.get(kind, [])} for kind in range(9)
        ]
        return {
            "metadata": {"node": {"id": 0}, "pid": self.pid, "init_time": 1, "fini_time": 2},
            "agents": self.agents,
            "counters": [],
            "strings": {
                "buffer_records": kinds,
                "marker_api": [{"key": key, "value": text} for key, text in self.texts.items()],
            },
            "kernel_symbols": [
                {
                    "kernel_id": key,
                    "kernel_name": f"_Z{key}.kd",
                    "formatted_kernel_name": name,
                    "demangled_kernel_name": name + " [clone .kd]",
                    **({"arch_vgpr_count": 32, "accum_vgpr_count": 8} if key == 7 else {}),
                }
                for key, name in kernels.items()
            ],
            "buffer_records": self.records,
        }


def document(*processes: Process, kernels: Mapping[int, str] = KERNELS) -> bytes:
    return json.dumps({"rocprofiler-sdk-tool": [one.data(kernels) for one in processes]}).encode()


def write(path: Path, *processes: Process, kernels: Mapping[int, str] = KERNELS) -> Path:
    path.write_bytes(document(*processes, kernels=kernels))
    return path
