"""Percentiles and histograms against counting by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.reports.distributions import histogram, percentiles

values = st.lists(st.integers(-(2**62), 2**63 - 1) | st.integers(0, 70), max_size=40)


def column(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


@given(values)
def test_every_value_falls_into_the_first_bucket_that_holds_it(numbers: list[int]) -> None:
    counted: dict[int, int] = {}
    for number in numbers:
        bound = 1
        while bound < number:
            bound *= 2
        counted[bound] = counted.get(bound, 0) + 1
    assert histogram(column(numbers)) == tuple(sorted(counted.items()))


@given(values)
def test_percentiles_are_measured_values(numbers: list[int]) -> None:
    found = percentiles(column(numbers))
    if not numbers:
        assert found is None
        return
    assert found is not None
    ordered = sorted(numbers)
    for value, percent in ((found.p50, 50), (found.p90, 90), (found.p99, 99)):
        assert value == ordered[-(-len(ordered) * percent // 100) - 1]
    assert (found.min, found.max) == (ordered[0], ordered[-1])
    assert sum(count for _, count in found.histogram) == len(numbers)
