"""What a user sees where a kernel cannot be compiled: one line, and the limit that it exceeds."""

from subprocess import CalledProcessError

import pytest
import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.fused_step import compile_failure
from tests.helpers.fused_steps import fused, ids_of, load_family, prompt_of

TOO_LARGE = OutOfResources(240_000, 101_376, "shared memory")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (TOO_LARGE, "240000 of the GPU's shared memory, but a program can have only 101376"),
        (CompilationError("def kernel():\n    x", None, "numel exceeds the maximum"), "(numel ex"),
        (PTXASError("codegen error\n`ptxas` stderr:\nmuch more"), "(PTXAS error: codegen error)"),
        (CalledProcessError(1, ["gcc", "main.c"]), "(gcc ended with exit code 1)"),
        (PermissionError(13, "Permission denied", "/home/.triton"), "/home/.triton"),
        (RuntimeError("Failed to find C compiler. Please specify"), "(Failed to find C compiler"),
        (RuntimeError("Triton Error [CUDA]: device kernel image is invalid"), "image is invalid"),
        (RuntimeError("PassManager::run failed"), "PassManager"),
        (OSError(), "(OSError)"),
    ],
)
def test_one_line_says_what_failed(error: Exception, said: str) -> None:
    failure = compile_failure(VariantSpec.parse("fused+graph-pdl"), error)
    assert isinstance(failure, MissingRequirement)
    assert str(failure).startswith("variant fused+graph-pdl: ")
    assert said in str(failure)
    assert "\n" not in str(failure)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        torch.OutOfMemoryError("CUDA out of memory"),
        ValueError("x [8]: must be [1 to 64, 8]"),
        MissingRequirement("reported already"),
    ],
)
def test_other_errors_are_left_alone(error: Exception) -> None:
    assert compile_failure(VariantSpec("fused"), error) is None


def test_a_step_reports_it_wherever_a_kernel_is_compiled_first(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_family("llama2", device)
    step = fused(loaded, DecodeWorkload(1, 2, 3, "fp32"))
    step.prefill(prompt_of(loaded, DecodeWorkload(1, 2, 3, "fp32")))

    def refuse(program: object) -> None:
        raise TOO_LARGE

    monkeypatch.setattr("decodescope.variants.steps.fused.program.StepProgram.run", refuse)
    with pytest.raises(MissingRequirement, match=r"variant fused: .*101376") as caught:
        step.forced_step(ids_of(loaded, 1, seed=1))
    assert caught.value.__cause__ is TOO_LARGE
