"""What measuring kernels needs; loads no Triton, so that it can say where that is missing."""

from importlib.util import find_spec

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.machine.environment import require_run_packages, why_no_cuda


def require_gpu() -> None:
    """Raise `MissingRequirement` where kernels cannot be measured; says why."""
    require_run_packages()
    lacking = why_no_cuda()
    if lacking is not None:
        raise MissingRequirement(f"bench kernels: {lacking}; kernels are measured on a CUDA device")
    if find_spec("triton") is None:
        raise MissingRequirement("bench kernels: needs Triton, which is not installed (Linux only)")
