"""The kinds of cases, how often each comes, and the case of a seed and a number."""

import random
from collections.abc import Callable

from tests.fuzzing.browser import browser_case
from tests.fuzzing.cached import cache_case
from tests.fuzzing.case import Case, weighted
from tests.fuzzing.checkpoints import checkpoint_case
from tests.fuzzing.corpus import corpus
from tests.fuzzing.databases import database_case, rocpd_case
from tests.fuzzing.gates import gate_case
from tests.fuzzing.lines import line_case
from tests.fuzzing.mcp_requests import mcp_case
from tests.fuzzing.planted import planted_case
from tests.fuzzing.profilers import packed_case, proton_case
from tests.fuzzing.ranks import rank_case
from tests.fuzzing.recordings import recording_case
from tests.fuzzing.surroundings import environment_case, settings_case
from tests.fuzzing.traces import byte_case, event_case, rocprof_case

KINDS: dict[str, Callable[[random.Random], Case]] = {
    "events": event_case,
    "planted": planted_case,
    "bytes": byte_case,
    "sqlite": database_case,
    "rocprof": rocprof_case,
    "rocpd": rocpd_case,
    "proton": proton_case,
    "packed": packed_case,
    "recording": recording_case,
    "checkpoint": checkpoint_case,
    "options": line_case,
    "ranks": rank_case,
    "environment": environment_case,
    "settings": settings_case,
    "browser": browser_case,
    "gate": gate_case,
    "cache": cache_case,
    "mcp": mcp_case,
}
CORPUS = "corpus"
_SHARES = {
    "events": 30,
    "planted": 30,
    "bytes": 20,
    "sqlite": 12,
    "rocprof": 5,
    "rocpd": 8,
    "proton": 6,
    "packed": 4,
    "recording": 10,
    "checkpoint": 6,
    "options": 17,
    "ranks": 8,
    "environment": 10,
    "settings": 6,
    "browser": 3,
    "gate": 6,
    "cache": 4,
    "mcp": 4,
}


def kind_of(seed: int, number: int) -> str:
    """The kind of case `number`; those below 0 are kept ones."""
    if number < 0:
        return CORPUS
    return weighted(random.Random(f"{seed} {number} kind"), _SHARES)


def case_of(seed: int, number: int) -> Case:
    """Case `number` of `seed`: the same on every machine."""
    if number < 0:
        return corpus()[number]
    return KINDS[kind_of(seed, number)](random.Random(f"{seed} {number}"))
