"""The environment of a measurement: versions, GPU, driver and host; and the choice of device."""

import platform
from importlib.util import find_spec
from pathlib import Path

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.machine.provenance import cpu_name, host_facts, package_version
from decodescope.analyzer.schema.report import Environment

RUN_PACKAGES = ("torch", "transformers", "safetensors")
# As a device, the first GPU for all ranks of a run, which otherwise have one each.
SHARED_GPU = "cuda:0"
INSTALL_HINT = "install them from a checkout with: pip install '.[run]'"


def missing_run_packages() -> list[str]:
    return [name for name in RUN_PACKAGES if find_spec(name) is None]


def require_run_packages() -> None:
    """Raise `MissingRequirement` if a package needed to run a model is not installed."""
    if missing := missing_run_packages():
        raise MissingRequirement(
            f"{', '.join(missing)} not installed, so no model can run here; {INSTALL_HINT}, "
            "or look at a recorded run: decodescope open"
        )


def require_gpu(command: str) -> None:
    """Raise `MissingRequirement` if `command` cannot measure here; imports no Triton."""
    require_run_packages()
    lacking = why_no_cuda()
    if lacking is not None:
        raise MissingRequirement(f"{command}: {lacking}; kernels are measured on a CUDA device")
    if find_spec("triton") is None:
        raise MissingRequirement(f"{command}: needs Triton, which is not installed (Linux only)")


def choose_device(requested: str | None) -> str:
    """The kind of device to run on, "cuda" or "cpu"; None chooses CUDA if it can be used.

    Raises:
        MissingRequirement: a GPU was requested and cannot be used; says why.
    """
    if requested == "cpu":
        return "cpu"
    lacking = why_no_cuda()
    if requested is not None and lacking is not None:
        raise MissingRequirement(f"--device {requested}: {lacking}; use --device cpu")
    return "cuda" if lacking is None else "cpu"


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter, on the CPU: its own switch, the environment
    variable TRITON_INTERPRET. Tokens and accuracy are then those of the kernels, times are not."""
    try:
        from triton import knobs
    except ImportError:
        return False
    return bool(knobs.runtime.interpret)


def why_no_cuda() -> str | None:
    """Why no CUDA device can be used on this machine; None if one can."""
    if find_spec("torch") is None:
        return f"torch is not installed; {INSTALL_HINT}"
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not torch.cuda.is_available():
        return "no CUDA device is visible (driver missing, too old, or no GPU)"
    if interpreting():
        return "TRITON_INTERPRET is set, so kernels run in Triton's interpreter, on the CPU"
    return None


def environment() -> Environment:
    """The machine and versions of a measurement; null for an absent part."""
    names = ("torch", "triton", "transformers")
    return host_facts() | {name: package_version(name) for name in names} | gpu_facts()


def device_name(device: str) -> str:
    """The GPU's name for "cuda", the processor's for "cpu"."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    return cpu_name() or platform.machine()


def gpu_uuid() -> str | None:
    """The CUDA device in use as NVML names it; None on another maker's GPU."""
    import torch

    if torch.version.cuda is None:
        return None
    return f"GPU-{torch.cuda.get_device_properties().uuid}"


def gpu_facts() -> Environment:
    """CUDA version, driver and GPU; all null without a CUDA device."""
    facts: Environment = dict.fromkeys(
        ("cuda", "driver", "gpu", "gpu_sms", "gpu_memory_bytes", "gpu_capability")
    )
    if why_no_cuda() is not None:
        return facts
    import torch

    properties = torch.cuda.get_device_properties()
    return facts | {
        "cuda": torch.version.cuda or torch.version.hip,
        "driver": driver_version(),
        "gpu": properties.name,
        "gpu_sms": properties.multi_processor_count,
        "gpu_memory_bytes": properties.total_memory,
        "gpu_capability": f"{properties.major}.{properties.minor}",
    }


def driver_version() -> str | None:
    """The NVIDIA kernel driver's version, from /proc; None without that driver."""
    path = Path("/proc/driver/nvidia/version")
    if not path.is_file():
        return None
    words = path.read_text(encoding="utf-8", errors="replace").split()
    versions = (word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit())
    return next(versions, None)
