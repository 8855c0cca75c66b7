import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.machine.memory import memory_errors


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
