"""Who may import whom, checked a second time: by what an import really loads."""

import json
import pkgutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

HEAVY = ("torch", "triton", "transformers", "nvtx")
NEEDS_TORCH = {"decodescope.analyzer.capture.profiler_session"}
# What every import of decodescope loads first.
FIRST = {"decodescope", "decodescope.version"}


def loaded_modules(statement: str, cwd: Path) -> set[str]:
    """Names in sys.modules of a fresh interpreter after `statement`."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=cwd
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def room_modules(repository: Path, room: str) -> list[str]:
    folder = repository / room
    found = pkgutil.walk_packages([str(folder)], f"decodescope.{room}.")
    return [module.name for module in found]


@pytest.mark.parametrize(
    ("room", "others"), [("analyzer", ("analyzer",)), ("tui", ("analyzer", "attach", "tui"))]
)
def test_base_rooms_load_nothing_heavy(
    repository: Path, tmp_path: Path, room: str, others: tuple[str, ...]
) -> None:
    names = [name for name in room_modules(repository, room) if name not in NEEDS_TORCH]
    assert len(names) > 5
    modules = loaded_modules(f"import {', '.join(names)}", tmp_path)
    assert not modules & set(HEAVY)
    ours = [name for name in modules - FIRST if name.startswith("decodescope.")]
    assert {name.split(".")[1] for name in ours} == set(others)


def test_kernels_import_no_other_room(repository: Path, tmp_path: Path) -> None:
    names = [
        f"decodescope.kernels.{path.parent.name}.{path.stem}"
        for path in (repository / "kernels").glob("*/*.py")
    ]
    assert names
    # They need torch: the process may be a fork that has it.
    modules = loaded_modules(f"import torch, {', '.join(names)}", tmp_path)
    ours = {name for name in modules - FIRST if name.startswith("decodescope.")}
    assert {name for name in ours if not name.startswith("decodescope.kernels")} == set()


def test_listing_variants_does_not_load_torch(tmp_path: Path) -> None:
    modules = loaded_modules("import decodescope.variants.registry", tmp_path)
    assert not modules & set(HEAVY)


def test_the_command_line_loads_neither_torch_nor_the_app(tmp_path: Path) -> None:
    modules = loaded_modules("import decodescope.cli.main", tmp_path)
    assert not modules & {*HEAVY, "textual", "numpy"}


def test_the_worker_announces_itself_before_it_loads_torch(tmp_path: Path) -> None:
    modules = loaded_modules("import decodescope.variants.live.worker", tmp_path)
    assert not modules & set(HEAVY)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports in functions and those for type checkers included."""
    graph = grimp.build_graph("benchmarks", "decodescope", "decodescope.kernels", cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    assert len(imports) > 100
    TopologicalSorter(imports).prepare()  # CycleError names the modules of a circle
