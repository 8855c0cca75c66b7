"""The profiler's cost, taken from the host's idle time."""

import random

import pytest

from decodescope.analyzer.answer.parts import HOST_CLASSES, PROFILER, without_profiler
from decodescope.analyzer.schema.report import GAP_CLASSES


@pytest.mark.parametrize("seed", range(50))
def test_cost_is_taken_from_the_hosts_classes_in_proportion(seed: int) -> None:
    chance = random.Random(seed)
    idle = {name: chance.choice((0, 1, chance.randrange(10**9))) for name in GAP_CLASSES}
    late_ns = sum(idle[name] for name in HOST_CLASSES)
    cost_ns = chance.choice((1, late_ns, late_ns + 1, chance.randrange(1, 10**9)))

    left = without_profiler(idle, cost_ns)

    taken_ns = min(cost_ns, late_ns)
    assert left.get(PROFILER, 0) == taken_ns
    assert sum(left.values()) == sum(idle.values())
    for name in GAP_CLASSES:
        share = idle[name] / late_ns if name in HOST_CLASSES and late_ns else 0.0
        assert idle[name] - left[name] == pytest.approx(share * taken_ns, abs=len(HOST_CLASSES))
        assert 0 <= left[name] <= idle[name]


def test_a_step_that_is_faster_under_the_profiler_has_no_cost_of_it() -> None:
    idle = dict.fromkeys(GAP_CLASSES, 7)
    assert without_profiler(idle, -3) == idle
