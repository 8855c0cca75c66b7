"""The wheel is complete, and the room `kernels` shadows no other package."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def wheel_names(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=repository,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_module_of_the_rooms_is_in_the_wheel(repository: Path, wheel_names: set[str]) -> None:
    for room in ("analyzer", "attach", "kernels", "variants", "tui"):
        for path in (repository / room).rglob("*.py"):
            assert f"decodescope/{path.relative_to(repository).as_posix()}" in wheel_names


def test_the_modules_beside_the_rooms_are_in_the_wheel(
    repository: Path, wheel_names: set[str]
) -> None:
    source = repository / "src"
    found = [*source.glob("decodescope/*.py"), *source.glob("decodescope/cli/**/*.py")]
    names = {path.relative_to(source).as_posix() for path in found}
    assert "decodescope/cli/main.py" in names
    assert names <= wheel_names


def test_the_wheel_holds_its_data_and_nothing_else(wheel_names: set[str]) -> None:
    assert "decodescope/py.typed" in wheel_names
    assert "decodescope/variants/tiny/model.safetensors" in wheel_names
    assert "decodescope/variants/steps/fused/tiling/tile_table.json" in wheel_names
    assert "decodescope/analyzer/modelling/models.json" in wheel_names
    assert "decodescope/analyzer/modelling/families.json" in wheel_names
    assert "decodescope/analyzer/readers/kineto/operators.toml" in wheel_names
    assert "decodescope/analyzer/roofline/device_peaks.json" in wheel_names
    assert {"decodescope/terms.md", "decodescope/columns.md"} <= wheel_names
    assert "decodescope/variants/model/presets.json" in wheel_names
    assert [name for name in wheel_names if name.endswith(".dsrec")]
    assert "decodescope/kernels/__init__.py" not in wheel_names
    top = {name.split("/")[0] for name in wheel_names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"decodescope"}
    assert not [name for name in wheel_names if "__pycache__" in name or "/tests/" in name]


@pytest.mark.parametrize("start", [".", "src"])
def test_our_kernels_do_not_shadow_hugging_faces_package(repository: Path, start: str) -> None:
    code = (
        "import importlib.util, sys\n"
        "spec = importlib.util.find_spec('kernels')\n"
        "print(spec.origin if spec else None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository / start,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(repository) not in done.stdout.replace(str(Path(sys.prefix)), "")


def test_transformers_does_not_take_our_kernels_for_a_package(repository: Path) -> None:
    code = "from transformers.utils import is_kernels_available as k; print(k())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_constraints_leave_triton_to_torch(repository: Path) -> None:
    lines = (repository / "constraints.txt").read_text().splitlines()
    assert not [line for line in lines if line.startswith("triton")]
    assert "torch==2.13.0" in lines


INSTALLS_BY_NAME = re.compile(r"\b(?:install|uvx|pipx run) (?:-\S+ )*['\"]?decodescope(?![\w/.-])")


@pytest.mark.parametrize("text", ["pip install decodescope", "pip install 'decodescope[run]'"])
def test_an_installation_by_name_is_recognised(text: str) -> None:
    assert INSTALLS_BY_NAME.search(text)


def test_nothing_says_to_install_decodescope_by_name(repository: Path) -> None:
    """The name is not registered on a package index: whoever registers it would be installed."""
    rooms = (
        "analyzer",
        "attach",
        "kernels",
        "variants",
        "tui",
        "src/decodescope/cli",
        "benchmarks",
        "docs",
    )
    found = [path for room in (*rooms, "examples") for path in (repository / room).rglob("*.*")]
    files = [path for path in found if path.is_file()]
    files += [repository / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")]
    texts = [path for path in files if path.suffix in (".py", ".md", ".j2", "")]
    assert len(texts) > 200
    assert [path.name for path in texts if INSTALLS_BY_NAME.search(path.read_text())] == []
