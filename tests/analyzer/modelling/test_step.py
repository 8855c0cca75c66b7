"""What a step's attention sees: against a walk over every query and key."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.shape import StepShape
from decodescope.analyzer.timing.step_annotations import parse_annotation


def walk(queries: int, keys: int, window: int | None) -> tuple[int, int]:
    """(positions read, pairs) of a request whose last `queries` of `keys` tokens are new."""
    read, pairs = set(), 0
    for query in range(keys - queries, keys):
        first = 0 if window is None else max(0, query - window + 1)
        read |= set(range(first, query + 1))
        pairs += query + 1 - first
    return len(read), pairs


@given(st.integers(1, 30), st.integers(0, 60), st.none() | st.integers(1, 40))
def test_one_request(queries: int, cached: int, window: int | None) -> None:
    step = StepShape(1, cached + queries, queries)
    assert (step.kv_read(window), step.attended_pairs(window)) == walk(
        queries, cached + queries, window
    )


@given(st.integers(1, 5), st.integers(1, 20), st.integers(0, 60), st.none() | st.integers(1, 40))
def test_requests_of_one_length(batch: int, queries: int, cached: int, window: int | None) -> None:
    step = StepShape(batch, batch * (cached + queries), batch * queries)
    read, pairs = walk(queries, cached + queries, window)
    assert step.kv_read(window) == pytest.approx(batch * read)
    assert step.attended_pairs(window) == pytest.approx(batch * pairs)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 50)), min_size=1, max_size=6))
def test_pairs_from_the_sums_of_an_annotation(requests: list[tuple[int, int]]) -> None:
    queries = [query for query, _ in requests]
    keys = [query + cached for query, cached in requests]
    squares = sum(query**2 for query in queries)
    products = sum(query * key for query, key in zip(queries, keys, strict=True))
    sums = f"sq{sum(queries)}sk{sum(keys)}sqsq{squares}sqsk{products}"
    name = f"execute_9_context_{len(requests)}({sums})_generation_0(sq0sk0sqsq0sqsk0)"
    pairs = parse_annotation(name).pairs
    assert pairs == sum(walk(q, k, None)[1] for q, k in zip(queries, keys, strict=True))
    step = StepShape(len(requests), sum(keys), sum(queries), pairs)
    assert step.attended_pairs(None) == pairs
    assert step.kv_read(None) == sum(keys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 10), "give 1 or more requests"),
        ((4, 100, 3), "one or more for each"),
        ((4, 3), "include the new tokens"),
    ],
)
def test_steps_that_cannot_be(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        StepShape(*arguments)  # type: ignore[arg-type]
