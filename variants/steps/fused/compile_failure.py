"""Errors of kernels that cannot be compiled or loaded on this machine, as one line."""

from subprocess import CalledProcessError

from triton.compiler.errors import CompilationError
from triton.errors import TritonError
from triton.runtime.errors import OutOfResources

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.spec import VariantSpec

# From Triton, from its compiler's passes, and from the driver that loads a kernel.
_RUNTIME_ERRORS = ("Failed to find C", "PassManager::run", "kernel image", "PTX")


def compile_failure(spec: VariantSpec, error: Exception) -> MissingRequirement | None:
    """The error to report if a launch failed because of this machine or its Triton; else None.

    If a kernel needs too much of the GPU, the message names the limit.
    """
    if isinstance(error, OutOfResources):
        return MissingRequirement(
            f"variant {spec}: one of its kernels needs {error.required} of the GPU's {error.name}, "
            f"but a program can have only {error.limit}; choose another variant"
        )
    if not _is_about_compiling(error):
        return None
    return MissingRequirement(
        f"variant {spec}: its kernels cannot be compiled here ({_reason(error)}); check that "
        "Triton has a C compiler, Python's headers and a folder to write to, or choose another "
        "variant"
    )


def _is_about_compiling(error: Exception) -> bool:
    if isinstance(error, RuntimeError):
        return any(words in str(error) for words in _RUNTIME_ERRORS)
    return isinstance(error, (TritonError, CalledProcessError, OSError))


def _reason(error: Exception) -> str:
    if isinstance(error, CalledProcessError):
        return f"{error.cmd[0]} ended with exit code {error.returncode}"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    # A compilation error quotes the kernel first and ends with what is wrong.
    return lines[-1 if isinstance(error, CompilationError) else 0].strip()
