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
    made = _situation(rng)
    (data, *_) = made.traces
    if rng.random() < _DAMAGED_SHARE:
        (other, *_) = _situation(rng).traces
        damaged, beside = (damage_events(json.loads(one), rng) for one in (data, other))
        return trace_case(rng, "trace.json", damaged, beside)
    truth = made.truths[0]
    model = () if made.model is None else ("--model", made.model)
    arguments = ("analyze", "trace.json", "--json", *model)
    return Case(arguments, {"trace.json": data}, is_planted=True, step_ns=truth.step_ns)


def _situation(rng: random.Random) -> Situation:
    if rng.random() < _RANDOM_SHARE:
        return random_situation(rng)
    made = rng.choice(list(SITUATIONS.values()))(rng)
    return made if made.is_exact else _situation(rng)
