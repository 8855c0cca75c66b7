"""Roles from names and places, compared with the ranges of recorded steps, which it never sees."""

import pytest

from decodescope.analyzer.names.rules import ROLES, bundled_rules
from decodescope.analyzer.structure.step_structure import KNOWN_BY, find_structure, roles_in_step
from decodescope.analyzer.timing.timeline import find_timeline
from tests.helpers.kineto_events import op, trace_of
from tests.helpers.recorded.decode_ops import (
    RecordedStep,
    allowed_roles,
    layers_of,
    meaning_of,
    recorded_steps,
)

STEPS = recorded_steps()
MIN_AGREEMENT = 0.98
CASES = [case for case, step in STEPS.items() if max(step.layers) >= 0]


def roles_of(step: RecordedStep) -> list[str]:
    meanings = [meaning_of(name) for name in step.names]
    letters = "".join(one.letter for one in meanings)
    named = [one.role for one in meanings]
    found = roles_in_step(letters, named, layers_of(step.names, step.ns))
    return [ROLES[role] for role in found.tolist()]


@pytest.mark.parametrize("case", CASES)
def test_roles_agree_with_the_ranges(case: str) -> None:
    step = STEPS[case]
    compared = agreed = 0
    for role, path, ns in zip(roles_of(step), step.paths, step.ns.tolist(), strict=True):
        allowed = allowed_roles(path)
        if allowed is not None:
            compared += ns
            agreed += ns if role in allowed else 0
    assert compared > 0.7 * step.ns.sum()
    assert agreed >= MIN_AGREEMENT * compared


@pytest.mark.parametrize("case", [case for case in CASES if "eager" in case])
def test_a_dense_layer_has_its_products(case: str) -> None:
    step = STEPS[case]
    found = layers_of(step.names, step.ns)
    assert found is not None
    roles = roles_of(step)
    for layer in found.layers:
        inside = roles[layer.start : layer.end]
        products = {"experts", "router"} if "experts" in inside else {"gate_up", "down"}
        assert {"qkv", "attention", "o", "norm"} | products <= set(inside)
        assert inside.index("qkv") < inside.index("attention") < inside.index("o")


def test_without_layers_a_place_decides_nothing() -> None:
    for case in ("vision", "random ops"):
        assert not {"qkv", "o", "gate_up", "down", "head"} & set(roles_of(STEPS[case]))


def test_two_compilers_of_one_model_have_the_same_roles() -> None:
    eager, compiled = (set(roles_of(STEPS[f"llama {how}"])) for how in ("eager", "compiled"))
    products = {"qkv", "attention", "o", "gate_up", "activation", "down", "head", "sampling"}
    assert products <= eager & compiled


@pytest.mark.parametrize("dense_first", [True, False])
def test_a_dense_mlp_beside_experts_keeps_its_roles(dense_first: bool) -> None:
    """Gemma 4 26B-A4B in an engine: each part has a norm before it and one behind it."""
    norm, product = ("rms_norm_kernel", "norm"), "nvjet_tst_64x8"
    dense = [norm, (product, "gate_up"), ("act_and_mul_kernel", "activation"), (product, "down")]
    experts = [
        norm,
        (product, "router"),
        ("topkGatingSoftmax", "router"),
        norm,
        ("fused_moe_kernel", "experts"),
        ("act_and_mul_kernel", "activation"),
        ("fused_moe_kernel", "experts"),
    ]
    attention = [norm, (product, "qkv"), ("flash_fwd_splitkv_kernel", "attention"), (product, "o")]
    parts = [*dense, norm, *experts] if dense_first else [*experts, norm, *dense]
    layer = [*attention, norm, *parts, norm, norm]
    expected = 4 * layer
    names = [name for name, _ in expected]
    meanings = [meaning_of(name) for name in names]
    letters = "".join(one.letter for one in meanings)
    found = roles_in_step(letters, [one.role for one in meanings], layers_of(names))
    assert [ROLES[role] for role in found.tolist()] == [role for _, role in expected]


def test_a_copy_beside_an_all_reduce_stages_its_message() -> None:
    """A copy to a registered buffer before, and one out of it behind; others stay copies."""
    inside, reduce = "Memcpy DtoD (Device -> Device)", "cross_device_reduce_1stage<half, 4>"
    ops = [
        ("Memcpy HtoD (Pinned -> Device)", 7),
        ("gemm", 7),
        (inside, 7),
        (reduce, 7),
        (inside, 7),
        ("gemm", 7),
        (inside, 7),
        ("gemm", 7),
        (inside, 9),
    ]
    events = [
        op(10 * number, 10 * number + 5, number, name=name, stream=stream)
        for number, (name, stream) in enumerate(ops)
    ]
    structure = find_structure(find_timeline(trace_of(*events)), bundled_rules())
    roles = [ROLES[role] for role in structure.role]
    communication = [number for number, role in enumerate(roles) if role == "communication"]
    assert communication == [2, 3, 4]
    assert [KNOWN_BY[structure.confidence[number]] for number in (2, 3)] == ["place", "name"]
