"""On what a figure was measured: versions, GPU, driver, host; and which device to use."""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.analyzer.provenance import (
    Environment,
    cpu_name,
    host_facts,
    package_version,
)
from decodescope.variants.model.workload import DType

CheckStatus = Literal["ok", "warn", "fail"]

_RUN_PACKAGES = ("torch", "transformers", "safetensors")
_INSTALL_HINT = "install them with: pip install 'decodescope[run]'"


def require_run_packages() -> None:
    """Raise `MissingRequirement` where the packages that run a model are not installed."""
    missing = [name for name in _RUN_PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingRequirement(
            f"{', '.join(missing)} not installed, so no model can run here; {_INSTALL_HINT}, "
            "or look at a recorded run: decodescope open"
        )


def choose_device(requested: str | None) -> str:
    """The device to run on: "cuda" or "cpu"; None takes CUDA where there is one.

    Raises:
        InputError: another name.
        MissingRequirement: "cuda" was asked for and cannot be used; says why.
    """
    if requested not in (None, "cuda", "cpu"):
        raise InputError(f"--device {requested}: must be cuda or cpu")
    if requested == "cpu":
        return "cpu"
    lacking = why_no_cuda()
    if requested == "cuda" and lacking is not None:
        raise MissingRequirement(f"--device cuda: {lacking}; use --device cpu")
    return "cuda" if lacking is None else "cpu"


def default_dtype(device: str) -> DType:
    """The dtype people run on this device: bf16 on CUDA, fp32 on the CPU."""
    return "bf16" if device == "cuda" else "fp32"


def why_no_cuda() -> str | None:
    """Why no CUDA device can be used here; None if one can."""
    if find_spec("torch") is None:
        return f"torch is not installed; {_INSTALL_HINT}"
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not torch.cuda.is_available():
        return "no CUDA device is visible (driver missing, too old, or no GPU)"
    return None


def environment() -> Environment:
    """What a result was measured on; null where a part is absent."""
    names = ("torch", "triton", "transformers")
    return host_facts() | {name: package_version(name) for name in names} | gpu_facts()


def device_name(device: str) -> str:
    """The name shown for "cuda" (the GPU's) or "cpu" (the processor's)."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name(0)
    return cpu_name() or platform.machine()


def gpu_facts() -> Environment:
    """CUDA version, driver and GPU; all null without a CUDA device."""
    facts: Environment = dict.fromkeys(
        ("cuda", "driver", "gpu", "gpu_sms", "gpu_memory_bytes", "gpu_capability")
    )
    if why_no_cuda() is not None:
        return facts
    import torch

    properties = torch.cuda.get_device_properties(0)
    return facts | {
        "cuda": torch.version.cuda or torch.version.hip,
        "driver": driver_version(),
        "gpu": properties.name,
        "gpu_sms": properties.multi_processor_count,
        "gpu_memory_bytes": properties.total_memory,
        "gpu_capability": f"{properties.major}.{properties.minor}",
    }


def driver_version() -> str | None:
    """The NVIDIA kernel driver's version, from /proc; None where there is none."""
    path = Path("/proc/driver/nvidia/version")
    if not path.is_file():
        return None
    words = path.read_text(encoding="utf-8", errors="replace").split()
    versions = (word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit())
    return next(versions, None)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing decodescope needs or can use: what was found, and what to do if it is lacking.

    "fail": models cannot run; "warn": something works less well, or not at all, without it.
    """

    name: str
    status: CheckStatus
    detail: str
    advice: str | None = None


def doctor() -> tuple[Check, ...]:
    """What this machine has for running models. Opening recorded traces needs none of it."""
    return tuple(check() for check in _CHECKS)


def _check_packages() -> Check:
    versions = {name: package_version(name) for name in _RUN_PACKAGES}
    found = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    missing = [name for name in _RUN_PACKAGES if find_spec(name) is None]
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}", _INSTALL_HINT)
    return Check("packages", "ok", found)


def _check_cuda() -> Check:
    lacking = why_no_cuda()
    if lacking is not None:
        return Check("CUDA", "warn", lacking, "models run on the CPU; GPU variants need CUDA")
    facts = gpu_facts()
    memory_gib = int(facts["gpu_memory_bytes"] or 0) / 1024**3
    detail = f"{facts['gpu']}, {memory_gib:.0f} GiB, CUDA {facts['cuda']}"
    return Check("CUDA", "ok", f"{detail}, driver {facts['driver'] or 'unknown'}")


def _check_triton() -> Check:
    version = package_version("triton")
    if version is None:
        advice = "without it there is no measured read peak, and no compiled variant"
        return Check("triton", "warn", "not installed", advice)
    return Check("triton", "ok", f"triton {version}")


def _check_nvtx() -> Check:
    version = package_version("nvtx")
    if version is None:
        advice = "ranges then do not show in Nsight Systems: pip install nvtx"
        return Check("nvtx", "warn", "not installed", advice)
    return Check("nvtx", "ok", f"nvtx {version}")


def _check_profiler() -> Check:
    if find_spec("torch") is None:
        return Check("profiler", "fail", "torch is not installed", _INSTALL_HINT)
    from torch.profiler import ProfilerActivity, kineto_available

    if not kineto_available():
        advice = "this build of torch has no Kineto; install one from pytorch.org"
        return Check("profiler", "fail", "torch.profiler cannot record", advice)
    if why_no_cuda() is None and ProfilerActivity.CUDA not in _activities():
        advice = "kernels cannot be recorded; check that CUPTI comes with this torch"
        return Check("profiler", "fail", "no CUDA activities", advice)
    return Check("profiler", "ok", "torch.profiler with Kineto")


def _activities() -> set[object]:
    from torch.profiler import supported_activities

    return set(supported_activities())  # type: ignore[no-untyped-call]


def _check_read_peak() -> Check:
    if why_no_cuda() is not None:
        return Check("read peak", "ok", "measured on a GPU only")
    from decodescope.variants.machine.read_peak_cache import (
        cache_folder,
        cached_peak,
        this_gpu,
        today,
    )

    peak = cached_peak(this_gpu(), cache_folder(), today())
    if peak is None:
        return Check("read peak", "ok", "not measured yet: the first run does")
    found = f"{peak.bytes_per_s / 1e12:.2f} TB/s, measured {peak.measured_at}"
    return Check("read peak", "ok", f"{found} (kept in {cache_folder()})")


def _check_tiny() -> Check:
    from decodescope.variants.model.source import TINY, resolve_model

    try:
        resolve_model(TINY)
    except DecodescopeError as error:
        return Check("tiny", "fail", str(error), "reinstall decodescope")
    return Check("tiny", "ok", "the bundled model is installed")


_CHECKS: tuple[Callable[[], Check], ...] = (
    _check_packages,
    _check_cuda,
    _check_triton,
    _check_nvtx,
    _check_profiler,
    _check_read_peak,
    _check_tiny,
)
