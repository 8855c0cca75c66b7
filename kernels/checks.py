"""Says what is wrong with a launcher's argument, and what would be right."""

import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def check_float(name: str, tensor: torch.Tensor) -> None:
    """Raise `ValueError` unless the kernels compute with this dtype."""
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} is {tensor.dtype}: must be one of {list(FLOATS)}")


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    strided: bool = False,
) -> None:
    """Raise `ValueError` unless `tensor` is of this shape, dtype and device, and contiguous.

    With `strided` only the elements of its last dimension have to be neighbours.
    """
    if tuple(tensor.shape) != shape or tensor.dtype != dtype or tensor.device != device:
        raise ValueError(
            f"{name} is {tensor.dtype} {list(tensor.shape)} on {tensor.device}: "
            f"must be {dtype} {list(shape)} on {device}"
        )
    if strided and shape[-1] > 1 and tensor.stride(-1) != 1:
        raise ValueError(f"{name} has strides {tensor.stride()}: the last one must be 1")
    if not strided and not tensor.is_contiguous():
        raise ValueError(f"{name} has strides {tensor.stride()}: must be contiguous")


def check_position(position: torch.Tensor, device: torch.device) -> None:
    """Raise `ValueError` unless `position` is int32 [1] on this device."""
    check_tensor("position", position, (1,), torch.int32, device)
