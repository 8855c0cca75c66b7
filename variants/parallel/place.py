"""The place of a process among the ranks of a run, by its environment, and the names of what each
rank leaves. Imports no torch."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct

from decodescope.analyzer.errors import InputError
from decodescope.variants.parallel.ranks import Ranks

# How the line of a rank that failed begins.
ERROR_PREFIX = "decodescope: "
_NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_HERE = "LOCAL_WORLD_SIZE"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of this process: `local_rank` of the `local_size` ranks on this host.

    The ranks meet at the store at `address`: rank 0's if `opens_store`, else the launcher's.
    """

    ranks: Ranks
    local_rank: int
    local_size: int
    address: tuple[str, int]
    opens_store: bool


class RankProcess(Struct, frozen=True):
    """The process of a rank: `parent` started it, on `host`."""

    host: str
    pid: int
    parent: int

    @property
    def name(self) -> str:
        return f"process {self.pid} on {self.host}"

    def is_sibling(self, other: "RankProcess") -> bool:
        """Whether one process started both, so that a process id means the same to both."""
        return (self.host, self.parent) == (other.host, other.parent)


def this_process() -> RankProcess:
    return RankProcess(socket.gethostname(), os.getpid(), os.getppid())


def is_rank(environment: Mapping[str, str]) -> bool:
    """Whether a process of this environment was started as one of several ranks, by our launcher,
    torchrun, or another one that names it as they do."""
    return all(name in environment for name in _NAMES) and environment["WORLD_SIZE"] != "1"


def ranks_here(ranks: Ranks) -> int:
    """How many of `ranks` are on this host, as their launcher says; all, where it does not."""
    return 1 if ranks.alone else int(os.environ.get(_HERE, ranks.size))


def place_of(environment: Mapping[str, str]) -> Place:
    """The place that `environment` names.

    Raises:
        InputError: a variable is no number, or none of a rank.
    """
    rank, size, host, port = (environment[name] for name in _NAMES)
    try:
        place = Place(
            Ranks(int(rank), int(size)),
            int(environment.get("LOCAL_RANK", rank)),
            int(environment.get(_HERE, size)),
            (host, int(port)),
            environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        )
    except ValueError:
        place = None
    if place is None or place.ranks.rank not in range(place.ranks.size) or int(port) >> 16:
        named = ", ".join(f"{name}={environment[name]}" for name in _NAMES)
        raise InputError(f"{named}: no place of a rank; start ranks by --tp or torchrun")
    return place


def rank_path(path: Path, rank: int) -> Path:
    """The file of a rank beside `path`: window.rank1.json.gz for window.json.gz."""
    name, dot, ending = path.name.partition(".json")
    return path.with_name(f"{name}.rank{rank}{dot}{ending}")


def rank_files(path: Path, size: int) -> list[Path]:
    """The files of `size` ranks that stand for `path`: itself for one rank."""
    return [path] if size == 1 else [rank_path(path, rank) for rank in range(size)]
