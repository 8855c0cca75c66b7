"""The median steps of two traces on one axis: every layer begins at the same place."""

import itertools
import random

import pytest

from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.tracks.aligned_steps import AlignedSteps, aligned_steps
from tests.helpers.foreign.layered import (
    EPILOGUE,
    LAYER,
    LAYER_ROLES,
    PROLOGUE,
    layered,
    step_names,
)
from tests.helpers.kineto_events import Event, call, op, span, trace_of


def planted(layers: int, seed: int) -> tuple[Analysis, list[list[int]]]:
    """Two steps of `layers` layers with random lengths and gaps, and the lengths by place."""
    rng = random.Random(seed)
    lengths = [rng.randrange(100, 5_000) for _ in step_names(layers)]
    events: list[Event] = []
    for step in range(2):
        at = step * 10_000_000
        events.append(span(at, at + 4_000_000, f"step_{step}"))
        start = at + 100_000
        for place, (name, length) in enumerate(zip(step_names(layers), lengths, strict=True)):
            number = step * len(lengths) + place + 1
            events.append(call(at + 10 * place, at + 10 * place + 5, number))
            events.append(op(start, start + length, number, name=name))
            start += length + rng.randrange(50, 400)
    cuts = [len(PROLOGUE) + len(LAYER) * layer for layer in range(layers + 1)]
    places = [lengths[: cuts[0]]]
    places += [lengths[a:b] for a, b in itertools.pairwise(cuts)] + [lengths[cuts[-1] :]]
    return analyze(trace_of(*events)), places


@pytest.mark.parametrize(("layers", "others"), [(4, 4), (4, 7), (12, 4)])
def test_layers_begin_together_and_every_op_is_where_it_was(layers: int, others: int) -> None:
    (base, base_places), (other, other_places) = planted(layers, 1), planted(others, 2)
    steps = aligned_steps(base, other)
    assert steps is not None
    most = max(layers, others)
    # A side with fewer layers has none of the last ones.
    filled = [
        [*places[:-1], *[[]] * (most - count), places[-1]]
        for places, count in ((base_places, layers), (other_places, others))
    ]
    start = 0
    for place, both in enumerate(zip(*filled, strict=True)):
        assert steps.start_ns[place] == start
        for side, lengths in zip(steps.sides, both, strict=True):
            at = start
            for number, length in enumerate(lengths):
                found = side.at(at + length // 2)
                assert found is not None
                assert found[2] == length
                if 0 < place <= most:
                    assert found[0] == LAYER_ROLES[number]
                    assert found[1] == LAYER[number]
                at += length
            if at < start + max(map(sum, both)):
                assert side.at(at) is None, "the other side's layer is longer"
        start += max(map(sum, both))
    assert steps.start_ns[-1] == start
    assert [side.busy_ns for side in steps.sides] == [
        sum(map(sum, places)) for places in (base_places, other_places)
    ]
    words = [steps.place_at(int(at)) for at in steps.start_ns[:-1]]
    assert words == ["before the layers", *(f"layer {n}" for n in range(most)), "behind the layers"]
    assert len(EPILOGUE) == len(base_places[-1])


def test_without_layers_or_steps() -> None:
    (analysis, _places), none = planted(4, 3), analyze(trace_of())
    alone = analyze(trace_of(*layered(1, steps=2)))
    assert aligned_steps(analysis, none) is None
    assert aligned_steps(none, none) is None
    steps = aligned_steps(analysis, alone)
    assert isinstance(steps, AlignedSteps)
    assert steps.sides[1].busy_ns == 900 * len(step_names(1))
