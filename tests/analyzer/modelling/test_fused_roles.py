"""Where the work of roles goes that have no kernel of their own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.shape import StepShape
from decodescope.analyzer.modelling.step_work import (
    RoleWork,
    role_work,
    step_bytes,
    with_fused_roles,
)
from decodescope.analyzer.modelling.weights import model_weights

ROLES = (
    "copy",
    "norm",
    "qkv",
    "qk_norm",
    "rope",
    "kv_write",
    "attention",
    "o",
    "gate_up",
    "activation",
    "down",
    "router",
    "experts",
    "head",
    "sampling",
)


def work_of(name: str) -> dict[str, RoleWork]:
    shape = read_model_config(name)
    return role_work(shape, StepShape(2, 300), model_weights(shape))


@given(st.sampled_from(["qwen3-8b", "gpt-oss-20b", "deepseek-v3"]), st.sets(st.sampled_from(ROLES)))
def test_no_weight_and_no_flop_is_lost(name: str, present: set[str]) -> None:
    work = work_of(name)
    fused = with_fused_roles(work, present)
    assert step_bytes(fused) == step_bytes(work)
    assert sum(one.flops for one in fused.values()) == sum(one.flops for one in work.values())
    for role, one in fused.items():
        assert one.activation_bytes == work[role].activation_bytes


def test_a_fused_step_of_five_kernels_a_layer() -> None:
    """As our own: norm, Q, K, V, rotation and the cache's row in one kernel."""
    work = work_of("qwen3-8b")
    fused = with_fused_roles(work, {"qkv", "attention", "o", "gate_up", "down", "head", "copy"})
    assert set(fused) == {"qkv", "attention", "o", "gate_up", "down", "head", "copy"}
    assert fused["o"] == work["o"]
    norms = work["norm"].weight_bytes + work["qk_norm"].weight_bytes
    assert fused["qkv"].weight_bytes == work["qkv"].weight_bytes + norms


def test_shared_experts_may_be_part_of_the_grouped_product() -> None:
    work = work_of("deepseek-v3")
    present = set(work) - {"gate_up", "down", "activation"}
    fused = with_fused_roles(work, present)
    moved = work["gate_up"].weight_bytes + work["down"].weight_bytes
    assert fused["experts"].weight_bytes == work["experts"].weight_bytes + moved


def test_roles_that_nothing_stands_for_keep_their_work() -> None:
    work = work_of("qwen3-8b")
    assert with_fused_roles(work, ()) == work
    assert with_fused_roles({}, {"qkv"}) == {}


@pytest.mark.parametrize("count", [0, 1, 5])
def test_times_is_a_sum(count: int) -> None:
    one = RoleWork(1, 2, 3, 4)
    total = RoleWork()
    for _ in range(count):
        total += one
    assert one.times(count) == total
    assert total.bytes == 6 * count
