"""The checks of `decodescope doctor`: whether this machine can run models.

torch is imported inside the checks, so that they can report that it is not installed.
"""

from dataclasses import dataclass, replace
from typing import Literal

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.machine.provenance import package_version
from decodescope.variants.machine.cache_folder import cache_folder
from decodescope.variants.machine.environment import (
    INSTALL_HINT,
    RUN_PACKAGES,
    gpu_facts,
    interpreting,
    missing_run_packages,
    why_no_cuda,
)
from decodescope.variants.model.source import TINY, resolve_model

CheckStatus = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing decodescope needs or can use: what was found, and what to do if it is missing.

    "fail": models cannot run. "warn": something works less well, or not at all, without it.
    """

    name: str
    status: CheckStatus
    detail: str
    advice: str | None = None


def doctor_checks() -> tuple[Check, ...]:
    """Check everything that running models needs; opening recorded traces needs none of it."""
    return (
        _check_packages(),
        _check_cuda(),
        _check_triton(),
        _check_optional("nvtx", "without it Nsight Systems shows no ranges: pip install nvtx"),
        _check_profiler(),
        _check_read_peak(),
        _check_tiny(),
    )


def _check_packages() -> Check:
    if missing := missing_run_packages():
        return Check("packages", "fail", f"missing: {', '.join(missing)}", INSTALL_HINT)
    versions = {name: package_version(name) for name in RUN_PACKAGES}
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return Check("packages", "ok", installed)


def _check_cuda() -> Check:
    lacking = why_no_cuda()
    if lacking is not None:
        return Check("CUDA", "warn", lacking, "models run on the CPU; GPU variants need CUDA")
    facts = gpu_facts()
    memory_gib = int(facts["gpu_memory_bytes"] or 0) / 1024**3
    detail = f"{facts['gpu']}, {memory_gib:.0f} GiB, CUDA {facts['cuda']}"
    return Check("CUDA", "ok", f"{detail}, driver {facts['driver'] or 'unknown'}")


def _check_optional(name: str, advice: str) -> Check:
    version = package_version(name)
    if version is None:
        return Check(name, "warn", "not installed", advice)
    return Check(name, "ok", f"{name} {version}")


def _check_triton() -> Check:
    check = _check_optional(
        "triton", "without it there is no measured read peak, and no compiled variant"
    )
    if check.status != "ok" or why_no_cuda() is None:
        return check
    if interpreting():
        detail = f"{check.detail}, its interpreter is on: fused kernels run on the CPU"
        return replace(check, detail=detail, advice="for tokens and accuracy, not for speed")
    advice = "TRITON_INTERPRET=1 runs fused kernels on the CPU, to check tokens and accuracy"
    return replace(check, advice=advice)


def _check_profiler() -> Check:
    if "torch" in missing_run_packages():
        return Check("profiler", "fail", "torch is not installed", INSTALL_HINT)
    from torch.profiler import ProfilerActivity, kineto_available, supported_activities

    if not kineto_available():
        advice = "this build of torch has no Kineto; install one from pytorch.org"
        return Check("profiler", "fail", "torch.profiler cannot record", advice)
    activities = supported_activities()  # type: ignore[no-untyped-call]
    if why_no_cuda() is None and ProfilerActivity.CUDA not in activities:
        advice = "kernels cannot be recorded; check that CUPTI comes with this torch"
        return Check("profiler", "fail", "no CUDA activities", advice)
    return Check("profiler", "ok", "torch.profiler with Kineto")


def _check_read_peak() -> Check:
    if why_no_cuda() is not None:
        return Check("read peak", "ok", "measured on a GPU only")
    from decodescope.variants.machine.read_peak import cached_peak, this_gpu, today

    peak = cached_peak(this_gpu(), cache_folder(), today())
    if peak is None:
        return Check("read peak", "ok", "not measured yet; the first run measures it")
    measured = f"{peak.bytes_per_s / 1e12:.2f} TB/s, measured {peak.measured_at}"
    return Check("read peak", "ok", f"{measured} (kept in {cache_folder()})")


def _check_tiny() -> Check:
    try:
        resolve_model(TINY)
    except DecodescopeError as error:
        return Check("tiny", "fail", str(error), "reinstall decodescope")
    return Check("tiny", "ok", "the bundled model is installed")
