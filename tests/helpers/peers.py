"""The variants of examples/decodescope-peers, as if pip had installed the package."""

import os
import tomllib
from pathlib import Path

import pytest

_PACKAGE = Path(__file__).parents[2] / "examples" / "decodescope-peers"


def install_peers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and its children find the package, whose metadata is written to `folder`."""
    project = tomllib.loads((_PACKAGE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    paths = [str(folder), str(_PACKAGE / "src")]
    for path in paths:
        monkeypatch.syspath_prepend(path)
    inherited = filter(None, [os.environ.get("PYTHONPATH")])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((*paths, *inherited)))
