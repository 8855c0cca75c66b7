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
    """One machine with its versions, and the records made there, by date."""

    machine: str
    gpu: str | None
    records: tuple[tuple[str, str, str], ...]


def read_records(folder: Path = RESULTS) -> dict[str, Record]:
    """Every record of `folder` by its name without `.json`."""
    return {
        path.stem: msgspec.json.decode(path.read_bytes()) for path in sorted(folder.glob("*.json"))
    }


def origins(environments: Mapping[str, Record]) -> list[Origin]:
    """The machines of records, those with a GPU first; each record with its date and commit."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for name, environment in environments.items():
        key = (environment.get("gpu") or "", machine_text(environment))
        line = (name, environment["date"][:16].replace("T", " "), commit_text(environment))
        found.setdefault(key, []).append(line)
    order = sorted(found, key=lambda key: (not key[0], key))
    return [
        Origin(key[1], key[0] or None, tuple(sorted(found[key], key=lambda line: line[1])))
        for key in order
    ]


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
