"""The alignment of sequences against the textbook's table."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.analyzer.attribution import alignment
from decodescope.analyzer.attribution.alignment import align


def length_of_longest(left: list[int], right: list[int]) -> int:
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            best = max(table[i][j + 1], table[i + 1][j])
            table[i + 1][j + 1] = table[i][j] + 1 if a == b else best
    return table[-1][-1]


def aligned(left: list[int], right: list[int]) -> list[int]:
    return align(np.array(left, dtype=np.int64), np.array(right, dtype=np.int64)).tolist()


sequences = st.lists(st.integers(0, 3), max_size=18)


@given(sequences, sequences)
@settings(deadline=None, max_examples=300)
def test_a_longest_common_subsequence(left: list[int], right: list[int]) -> None:
    partner = aligned(left, right)
    pairs = [(a, b) for a, b in enumerate(partner) if b >= 0]
    assert all(left[a] == right[b] for a, b in pairs)
    assert all(one[1] < other[1] for one, other in pairwise(pairs))
    assert len(pairs) == length_of_longest(left, right)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.data())
@settings(deadline=None)
def test_what_is_left_out_or_put_in_is_all_that_is_unmatched(
    right: list[int], data: st.DataObject
) -> None:
    out = data.draw(st.sets(st.integers(0, len(right) - 1)))
    left = [value for index, value in enumerate(right) if index not in out]
    put_in = data.draw(st.integers(0, len(left)))
    left = [*left[:put_in], 9, *left[put_in:]]
    assert [k for k, partner in enumerate(aligned(left, right)) if partner < 0] == [put_in]


@pytest.mark.parametrize(("left", "right"), [([], []), ([1], []), ([], [1]), ([1], [1])])
def test_next_to_nothing(left: list[int], right: list[int]) -> None:
    assert aligned(left, right) == [0 if left and right else -1 for _ in left]


def test_of_what_is_too_large_only_the_ends_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = [1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 4, 5, 3, 7, 8]
    assert aligned(left, right) == [0, 1, -1, 3, 4, -1, 6, 7]
    monkeypatch.setattr(alignment, "MAX_CELLS", 15)
    assert aligned(left, right) == [0, 1, -1, -1, -1, -1, 6, 7]
