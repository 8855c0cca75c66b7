import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.variants.measuring.window import WindowPlan, window_plan


@given(st.integers(1, 50), st.integers(1, 10))
def test_a_plan_fits_and_uses_all_it_can(left: int, steps: int) -> None:
    plan = window_plan(left, steps)
    assert plan.steps >= 1
    assert plan.total <= left
    if left >= steps + 2:
        assert plan == WindowPlan(warm=1, lead=1, steps=steps)
    else:
        assert plan.total == left


@pytest.mark.parametrize(
    ("left", "expected"), [(1, (0, 0, 1)), (2, (1, 0, 1)), (3, (1, 1, 1)), (4, (1, 1, 2))]
)
def test_short_plans_drop_steps_then_the_lead_then_the_warm_step(
    left: int, expected: tuple[int, int, int]
) -> None:
    assert window_plan(left, 3) == WindowPlan(*expected)
