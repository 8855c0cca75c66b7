"""Limits that no linter checks: lines of a function, calls that have one place, and how many files
a command runs through."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = ("analyzer", "attach", "kernels", "variants", "tui", "src")
ROOMS = (
    *PACKAGE,
    "tools",
    "benchmarks",
    "examples",
    "tests",
)
# What writes to a terminal, and where: there, strings from outside become plain.
WRITERS = {
    "Console": {"src/decodescope/cli/output.py"},
    "Segment": {"tui/panels/prompt.py", "tui/panels/sheet.py", "tui/terminal_app.py"},
    "from_markup": set(),
    "from_ansi": set(),
}
# What makes a temporary folder, and where: there, one that was left by a killed process is removed.
FOLDERS = {"mkdtemp": {"analyzer/io/work_folders.py"}, "TemporaryDirectory": set()}
MAX_LINES = 80
# The most files that a command runs through, and pairs of them that call each other both ways.
# 69 and 1, 129 and 4, 91 and 3 as measured on 2026-11-24, and 5 % more; one file more for
# recordings of servers. A run may be that of one rank of several: five files more.
WAYS = {
    "analyze tests/data/h200_graph_replays.json.gz": (72, 2),
    "open --once analyzer/recordings/h200-llama-3.2-1b-fused.dsrec": (136, 5),
    "run --model tiny --device cpu --variant eager --context 8 --tokens 8": (100, 3),
}
# Python files of the package and their lines, as measured on 2026-11-29. Without a feature that was
# asked for, neither grows (decision 114).
MAX_PACKAGE_FILES, MAX_PACKAGE_LINES = 567, 81_880

Function = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(repository: Path, *rooms: str) -> Iterator[Path]:
    """Files below the rooms, relative to the repository; links to rooms are not followed."""
    for room in rooms:
        for path in sorted((repository / room).rglob("*.py")):
            if not any(parent.is_symlink() for parent in path.parents):
                yield path.relative_to(repository)


@pytest.fixture(scope="module")
def nodes(repository: Path) -> dict[Path, list[ast.AST]]:
    """The functions, calls, lists and tuples of every file of the source code, by its path."""
    return {
        path: [
            node
            for node in ast.walk(ast.parse((repository / path).read_text()))
            if isinstance(node, Function | ast.Call | ast.List | ast.Tuple)
        ]
        for path in python_files(repository, *ROOMS[:-1])
    }


@pytest.fixture(scope="module")
def functions(nodes: dict[Path, list[ast.AST]]) -> list[tuple[str, Function]]:
    """Every function of the source code that Triton does not compile, named "file: function"."""
    found = [
        (f"{path.as_posix()}: {node.name}", node)
        for path, in_file in nodes.items()
        for node in in_file
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


@pytest.mark.parametrize(("places", "rooms"), [(WRITERS, ROOMS[:-1]), (FOLDERS, PACKAGE)])
def test_what_has_one_place_is_called_only_there(
    nodes: dict[Path, list[ast.AST]], places: dict[str, set[str]], rooms: tuple[str, ...]
) -> None:
    found: dict[str, set[str]] = {name: set() for name in places}
    for path, in_file in nodes.items():
        for call in in_file:
            name = _called(call) if isinstance(call, ast.Call) else None
            if name in found and path.as_posix().startswith(tuple(f"{room}/" for room in rooms)):
                found[name].add(path.as_posix())
    assert found == places


def _called(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


@pytest.mark.parametrize("command", WAYS)
def test_the_way_of_a_command_is_short(repository: Path, command: str) -> None:
    if command.startswith("run"):
        pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-m", "tools.ways", *command.split()],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    ways = json.loads(done.stdout.splitlines()[-1])
    max_files, max_pairs = WAYS[command]
    assert 20 < ways["files"] <= max_files, done.stderr
    assert ways["both_ways"] <= max_pairs, done.stderr


def test_the_package_stays_readable(repository: Path) -> None:
    files = list(python_files(repository, *PACKAGE))
    assert len(files) <= MAX_PACKAGE_FILES
    lines = sum(len((repository / path).read_text().splitlines()) for path in files)
    assert lines <= MAX_PACKAGE_LINES


def test_processes_of_ours_import_nothing_from_the_current_folder(
    nodes: dict[Path, list[ast.AST]],
) -> None:
    """`-P` keeps the folder that a user stands in, maybe a download, out of sys.path."""
    started = [
        (path, [ast.unparse(element) for element in node.elts[:2]])
        for path, in_file in nodes.items()
        for node in in_file
        if path.parts[0] in PACKAGE
        and isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and ast.unparse(node.elts[0]) == "sys.executable"
    ]
    assert len(started) >= 4
    assert [command for command in started if command[1][1] != "'-P'"] == []
