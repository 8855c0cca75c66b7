"""Products of a trace, and what their bytes and FLOPs say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.trace_facts import (
    Product,
    ProductFit,
    TraceFacts,
    distinct_products,
    shown_requests,
)
from tests.helpers.modelling.products import product

_SIZE = st.integers(64, 1 << 15)


@given(st.integers(1, 1 << 14), _SIZE, _SIZE, st.sampled_from((1, 2, 4)))
def test_a_product_fits_its_own_matrix(
    tokens: int, rows: int, columns: int, element_bytes: int
) -> None:
    fit = product(tokens, rows, columns, element_bytes).fits(rows, columns)
    assert fit is not None
    # Scales of 8-bit elements leave room, so that another split of the bytes may fit first.
    assert fit.tokens == tokens
    assert fit.element_bytes == element_bytes


@given(st.integers(1024, 5000), st.integers(8, 256))
def test_a_matrix_of_twice_the_size_does_not_fit_half_the_tokens(size: int, half: int) -> None:
    assert product(2 * half, size, 4096).fits(2 * size, 4096) is None


def test_biases_and_scales_count_as_slack() -> None:
    plain = product(32, 5120, 2880)
    assert Product(plain.bytes + 2 * 5120, plain.flops).fits(5120, 2880) == ProductFit(32, 2)
    narrow = product(32, 5120, 2880, element_bytes=1)
    scales = 4 * (32 + 5120)
    assert Product(narrow.bytes + scales, narrow.flops).fits(5120, 2880) == ProductFit(32, 1)
    assert Product(plain.bytes + 2_000_000, plain.flops).fits(5120, 2880) is None
    assert Product(plain.bytes, plain.flops + 2).fits(5120, 2880) is None


def test_distinct_products_are_counted_and_empty_ones_left_out() -> None:
    moved, flops = np.array([10, 10, 7, 0, 5]), np.array([24, 24, 25, 8, 0])
    assert set(distinct_products(moved, flops)) == {Product(10, 24, 2), Product(7, 25, 1)}
    assert distinct_products(*np.zeros((2, 0), dtype=np.int64)) == ()


@pytest.mark.parametrize(
    ("elements", "requests"), [(32_064, 1), (32_064 * 17, 17), (32_000, None), (0, None)]
)
def test_logits_count_the_requests(elements: int, requests: int | None) -> None:
    shape = read_model_config("llama-3.1-70b")
    assert shown_requests(shape, TraceFacts(gathered=(elements,)), 4) == requests
