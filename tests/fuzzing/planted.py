"""Cases of planted traces: whole, with the truth that must be said of them, or damaged."""

import json
import random

from tests.fuzzing.case import Case
from tests.fuzzing.damage import damage_events
from tests.fuzzing.traces import trace_case
from tests.helpers.planted.random_plans import random_situation
from tests.helpers.planted.situation import Situation
from tests.helpers.planted.situations import SITUATIONS

_RANDOM_SHARE, _DAMAGED_SHARE = 0.6, 0.4


def planted_case(rng: random.Random) -> Case:
    """One trace of a situation, or of a plan that none names."""
    if rng.random() < _DAMAGED_SHARE:
        return trace_case(rng, "trace.json", _damaged(rng), lambda: _damaged(rng))
    return whole_case(rng)


def whole_case(rng: random.Random) -> Case:
    """A trace without damage, whose figures must be the planted ones."""
    made = _situation(rng)
    model = () if made.model is None else ("--model", made.model)
    arguments = ("analyze", "trace.json", "--json", *model)
    step_ns = made.truths[0].step_ns
    return Case(arguments, {"trace.json": made.traces[0]}, is_planted=True, step_ns=step_ns)


def planted_trace(rng: random.Random) -> bytes:
    """The trace of such a case, damaged as often."""
    return _damaged(rng) if rng.random() < _DAMAGED_SHARE else _situation(rng).traces[0]


def _damaged(rng: random.Random) -> bytes:
    return damage_events(json.loads(_situation(rng).traces[0]), rng)


def _situation(rng: random.Random) -> Situation:
    if rng.random() < _RANDOM_SHARE:
        return random_situation(rng)
    made = rng.choice(list(SITUATIONS.values()))(rng)
    return made if made.is_exact else _situation(rng)
