"""Cases of several ranks: of different lengths, clocks and numbers, whole or damaged."""

import random
from typing import Any

from tests.fuzzing.case import Case
from tests.fuzzing.damage import ODD_VALUES, as_json, damage_bytes, damage_events
from tests.fuzzing.traces import window

_OPTIONS = (
    ("--json",),
    ("--json",),
    ("--json",),
    (),
    ("--show", "all"),
    ("--format", "csv"),
    ("--format", "html"),
)


def rank_case(rng: random.Random) -> Case:
    """A command that reads two to five traces, most of them ranks of one run."""
    same = window(rng)
    names = [f"rank{number}.json" for number in range(rng.randint(2, 5))]
    files = {name: _rank(same, number, len(names), rng) for number, name in enumerate(names)}
    if rng.random() < 0.15:
        half = max(len(names) // 2, 1)
        sides = ("diff", *names[:half], "--against", *names[half:])
        return Case((*sides, *rng.choice(((), ("--json",)))), files)
    return Case(("analyze", *names, *rng.choice(_OPTIONS)), files)


def _rank(same: dict[str, Any], number: int, count: int, rng: random.Random) -> bytes:
    document = dict(same if rng.random() < 0.7 else window(rng))
    events = document["traceEvents"]
    document["traceEvents"] = events[: rng.choice((len(events), len(events), 0, 1, 7))]
    document["distributedInfo"] = {"rank": number, "world_size": count, "backend": "nccl"}
    document["baseTimeNanoseconds"] = rng.choice((0, 10**18, 10**18 + number))
    if rng.random() < 0.3:
        place = rng.choice((document, document["distributedInfo"]))
        place[rng.choice(("distributedInfo", "rank", "world_size", "pg_config"))] = rng.choice(
            ODD_VALUES
        )
    damaged = rng.random()
    if damaged < 0.3:
        return damage_events({**document, "traceEvents": [*document["traceEvents"]]}, rng)
    data = as_json(document, rng)
    return damage_bytes(data, rng) if damaged < 0.4 else data
