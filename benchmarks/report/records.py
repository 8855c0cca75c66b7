"""The committed records: what each script and command wrote, and where it was measured.

A record is the JSON of its file. Its fields are those that the script of that name writes
(benchmarks/README.md); a missing one is an error, never an empty cell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
Record = Mapping[str, Any]

_TOOLS = ("driver", "cuda", "torch", "triton", "transformers", "python")


@dataclass(frozen=True, slots=True)
class Origin:
    """One machine with its versions, and the names of the records made there, by the day (UTC) and
    the commit."""

    machine: str
    gpu: str | None
    names: Mapping[tuple[str, str], list[str]]


def read_records(folder: Path = RESULTS) -> dict[str, Record]:
    """Every record of `folder` by its name without `.json`."""
    return {
        path.stem: msgspec.json.decode(path.read_bytes()) for path in sorted(folder.glob("*.json"))
    }


def origins(environments: Mapping[str, Record]) -> list[Origin]:
    """The machines of records, those with a GPU first."""
    found: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for name in sorted(environments, key=lambda name: environments[name]["date"]):
        environment = environments[name]
        key = (environment.get("gpu") or "", machine_text(environment))
        made = (environment["date"][:10], commit_text(environment))
        found.setdefault(key, {}).setdefault(made, []).append(name)
    order = sorted(found, key=lambda key: (not key[0], key))
    return [Origin(key[1], key[0] or None, found[key]) for key in order]


def machine_text(environment: Record) -> str:
    """What a record was measured on: its GPU, or the CPU where no GPU took part, and versions."""
    named = environment.get("gpu") or f"{environment['cpu']}, {environment['cpu_cores']} cores"
    versions = [f"{tool} {environment[tool]}" for tool in _TOOLS if environment.get(tool)]
    return ", ".join([named, *versions])


def commit_text(environment: Record) -> str:
    """The first digits of the commit, with a "+" if files had changed since."""
    commit = environment.get("commit")
    if not commit:
        return "not recorded"
    return str(commit[:9]) + ("+" if commit.endswith("+") else "")
