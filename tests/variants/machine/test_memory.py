from pathlib import Path

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.machine.memory import free_host_bytes, memory_errors


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2.00 GiB."),
        RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_running_out_of_memory_is_one_line(error: RuntimeError) -> None:
    with (
        pytest.raises(MissingRequirement) as caught,
        memory_errors("loading x in bf16", "cpu"),
    ):
        raise error
    message = str(caught.value)
    assert message.startswith("out of GPU memory while loading x in bf16; try a smaller model")
    assert "\n" not in message


def test_other_errors_pass_unchanged() -> None:
    for error in (ZeroDivisionError("by zero"), RuntimeError("CUDA error: invalid argument")):
        with pytest.raises(type(error), match=str(error)), memory_errors("doing sums", "cpu"):
            raise error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_running_out_of_host_memory_is_one_line(error: Exception) -> None:
    with (
        pytest.raises(MissingRequirement, match=r"^out of memory while loading x; try a smaller"),
        memory_errors("loading x", "cuda"),
    ):
        raise error


def files(root: Path, **contents: str) -> Path:
    for path, content in contents.items():
        file = root / path.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def test_free_memory_is_that_of_the_machine_or_of_the_control_group(tmp_path: Path) -> None:
    assert free_host_bytes(tmp_path) is None
    files(tmp_path, proc__meminfo="MemTotal: 9 kB\nMemAvailable:       100 kB\n")
    assert free_host_bytes(tmp_path) == 100 * 1024
    files(tmp_path, proc__self__cgroup="0::/jobs/one\n")
    assert free_host_bytes(tmp_path) == 100 * 1024
    group = {"sys__fs__cgroup__jobs__one__memory_dot_stat": "anon 3000\nfile 90000\n"}
    files(tmp_path, sys__fs__cgroup__jobs__one__memory_dot_max="max\n", **group)
    assert free_host_bytes(tmp_path) == 100 * 1024
    files(tmp_path, sys__fs__cgroup__jobs__one__memory_dot_max="10000\n")
    assert free_host_bytes(tmp_path) == 7000
