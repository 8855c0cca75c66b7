"""What compute-sanitizer prints becomes counts, and a part that did not finish is never a zero."""

import sys
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules

import pytest

from benchmarks.checks import kernel_sanitizer, sanitized_launches
from benchmarks.checks.kernel_sanitizer import Ran, error_count, outcome, run_part
from decodescope.kernels import ops
from decodescope.kernels.host.operation import KernelOperation


def kernels_of_operations() -> set[str]:
    """The names of all kernels with an operation."""
    for module in iter_modules(ops.__path__, f"{ops.__name__}."):
        import_module(module.name)
    found, left = set(), [KernelOperation]
    while left:
        operation = left.pop()
        left += (below := operation.__subclasses__())
        if not (below or isabstract(operation)) and operation.__module__.startswith(ops.__name__):
            found.add(operation.kernel.fget(object.__new__(operation)))  # type: ignore[attr-defined]
    return found


def test_every_kernel_is_launched() -> None:
    launched = {one.kernel for one in sanitized_launches.other_operations("cpu")}
    for part in range(len(sanitized_launches.MODELS)):
        launched |= {one.use.kernel for one in sanitized_launches.model_cases(part, "cpu", 132)}
    assert kernels_of_operations() - launched == set()


def test_operations_of_a_rank_wait_for_nothing(device: str) -> None:
    for operation in sanitized_launches.other_operations(device):
        if (exchange := operation.arguments.get("exchange")) is not None:
            operation.launch()
            operation.launch()
            assert exchange.missing.item() == 0


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("========= ERROR SUMMARY: 0 errors", 0),
        ("========= ERROR SUMMARY: 12 errors", 12),
        ("========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)", 3),
        ("========= COMPUTE-SANITIZER", None),
    ],
)
def test_errors_are_those_of_the_summary(output: str, errors: int | None) -> None:
    assert error_count(output) == errors


def test_parts_are_added_up() -> None:
    found = outcome("memcheck", [Ran(3, 0, 0), Ran(4, 2, 1)])
    assert (found["launches"], found["errors"], found["exit_code"]) == (7, 2, 1)


@pytest.mark.parametrize("cut", [Ran(None, None, -9), Ran(4, None, 0)])
def test_a_part_that_did_not_finish_leaves_no_count(cut: Ran) -> None:
    found = outcome("racecheck", [Ran(3, 0, 0), cut])
    assert found["errors"] is None
    assert found["exit_code"] == cut.exit_code


def test_a_part_runs_under_the_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(
        "import sys\n"
        "print('launches:', sys.argv[-1])\n"
        "print('========= ERROR SUMMARY: 1 error', sys.argv[1:-1])\n"
    )
    monkeypatch.setattr(kernel_sanitizer, "ROOT", tmp_path)
    assert run_part((sys.executable, str(tool)), 5) == Ran(5, 1, 0)
    assert "part 5: " in capsys.readouterr().err
