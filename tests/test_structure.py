"""Limits that no linter checks: lines of a function, and calls that have one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOMS = (
    "analyzer",
    "kernels",
    "variants",
    "tui",
    "src",
    "tools",
    "benchmarks",
    "examples",
    "tests",
)
# What writes to a terminal, and where: there, strings from outside become plain.
WRITERS = {
    "Console": {"src/decodescope/cli/output.py"},
    "Segment": {"tui/panels/sheet.py", "tui/style/terminal.py"},
    "from_markup": set(),
    "from_ansi": set(),
}
# What makes a temporary folder, and where: there, one that was left by a killed process is removed.
FOLDERS = {"mkdtemp": {"analyzer/io/work_folders.py"}, "TemporaryDirectory": set()}
MAX_LINES = 80

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(repository: Path, *rooms: str) -> Iterator[Path]:
    """Files below the rooms, relative to the repository; links to rooms are not followed."""
    for room in rooms:
        for path in sorted((repository / room).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path.relative_to(repository)


@pytest.fixture(scope="module")
def functions(repository: Path) -> list[tuple[str, Function]]:
    """Every function of the source code that Triton does not compile, named "file: function"."""
    found = [
        (f"{path.as_posix()}: {node.name}", node)
        for path in python_files(repository, *ROOMS[:-1])
        for node in ast.walk(ast.parse((repository / path).read_text()))
        if isinstance(node, Function) and not any(map(_is_jit, node.decorator_list))
    ]
    assert len(found) > 1000
    return found


def _is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("triton.jit")


def test_no_function_is_too_long(functions: list[tuple[str, Function]]) -> None:
    long = {
        name
        for name, function in functions
        if (function.end_lineno or 0) - function.lineno >= MAX_LINES
    }
    assert long == set()


@pytest.mark.parametrize(("places", "rooms"), [(WRITERS, ROOMS[:-1]), (FOLDERS, ROOMS[:5])])
def test_what_has_one_place_is_called_only_there(
    repository: Path, places: dict[str, set[str]], rooms: tuple[str, ...]
) -> None:
    found: dict[str, set[str]] = {name: set() for name in places}
    for path in python_files(repository, *rooms):
        for node in ast.walk(ast.parse((repository / path).read_text())):
            name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if name in places:
                found[name].add(path.as_posix())
    assert found == places
