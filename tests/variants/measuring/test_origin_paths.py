"""Kernel calls of generated code joined with a real profile of that code."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.reports.reference_ops import reference_from
from decodescope.variants.measuring.window import origin_paths
from decodescope.variants.steps.decode_step import CallSite
from decodescope.variants.steps.inductor_origins import call_sites
from tests.helpers import compiled_code

LAYERS = compiled_code.LAYERS


@pytest.fixture(scope="module")
def profile() -> Any:
    return analyze(load(compiled_code.PROFILE))


@pytest.fixture(scope="module")
def sites() -> tuple[CallSite, ...]:
    return call_sites(compiled_code.WRAPPER, compiled_code.NODES)


def test_every_op_of_the_model_has_the_range_of_its_call(
    profile: Any, sites: tuple[CallSite, ...]
) -> None:
    paths = origin_paths(profile, 0, sites)
    trace = profile.trace
    names = [trace.names[name] for name in trace.ops.name.tolist()]
    missing = [op for op in range(len(trace.ops)) if op not in paths]
    # The argmax of the sampling is not compiled.
    assert [("reduce_kernel" in names[op]) for op in missing] == [True]

    triton = [op for op in range(len(names)) if names[op].startswith("triton_")]
    expected = [site for site in sites if site.operator.startswith("triton_")]
    assert [(names[op], paths[op]) for op in triton] == [
        (site.operator, f"decode_step/model/{site.path}") for site in expected
    ]
    # Two products are split over the reduced dimension and so launch two ops each.
    assert Counter(path.rpartition("/")[2] for path in paths.values()) == {
        "attention": LAYERS * (5 + 1 + 5 + 1),
        "mlp": LAYERS * (4 + 1),
        "input_norm": LAYERS - 1,
        "post_attention_norm": LAYERS,
        "rotary": 2,
        "embedding+input_norm": 1,
        "final_norm": 1,
        "lm_head": 2,
    }


def test_ops_stay_in_the_order_of_the_layers(profile: Any, sites: tuple[CallSite, ...]) -> None:
    paths = origin_paths(profile, 0, sites)
    layers = [
        int(paths[op].split("layer.")[1].split("/")[0])
        for op in sorted(paths)
        if "layer." in paths[op] and "add_copy" not in _name(profile, op)
    ]
    assert layers == sorted(layers)
    assert set(layers) == set(range(LAYERS))


def _name(profile: Any, op: int) -> str:
    name: str = profile.trace.names[profile.trace.ops.name[op]]
    return name


@pytest.mark.parametrize("place", [1, 5, 100, 200, 291])
def test_one_call_more_or_less_says_nothing_at_all(
    profile: Any, sites: tuple[CallSite, ...], place: int
) -> None:
    assert origin_paths(profile, 0, sites[:place] + sites[place + 1 :]) == {}
    assert origin_paths(profile, 0, sites[: place + 1] + sites[place:]) == {}


def test_an_operator_that_no_call_is_named_as_only_lacks_itself(
    profile: Any, sites: tuple[CallSite, ...]
) -> None:
    whole = origin_paths(profile, 0, sites)
    assert [site.operator for site in sites].count(sites[0].operator) == 1
    assert origin_paths(profile, 0, sites[1:]) == {op: whole[op] for op in whole if op != 0}


def test_swapped_calls_say_nothing(profile: Any, sites: tuple[CallSite, ...]) -> None:
    assert sites[0].operator != sites[1].operator
    assert origin_paths(profile, 0, (sites[1], sites[0], *sites[2:])) == {}


def test_calls_that_no_profile_shows_are_passed_over(
    profile: Any, sites: tuple[CallSite, ...]
) -> None:
    hidden = CallSite("aten::never_profiled", "layer.0/mlp")
    more = (hidden, *sites[:7], hidden, *sites[7:], hidden)
    assert origin_paths(profile, 0, more) == origin_paths(profile, 0, sites)


def test_calls_without_a_path_leave_their_ops_where_the_host_had_them(
    profile: Any, sites: tuple[CallSite, ...]
) -> None:
    blank = tuple(CallSite(site.operator, "") for site in sites)
    assert origin_paths(profile, 0, blank) == {}
    only = (CallSite(sites[0].operator, "embedding"), *blank[1:])
    paths = origin_paths(profile, 0, only)
    assert paths == {0: "decode_step/model/embedding"}
    assert origin_paths(profile, 0, ()) == {}


def test_the_reference_takes_these_paths(profile: Any, sites: tuple[CallSite, ...]) -> None:
    paths = origin_paths(profile, 0, sites)
    reference = reference_from(profile, 0, paths)
    mine = np.flatnonzero(profile.steps.op_step == 0).tolist()
    assert [op.path for op in reference.ops] == [
        paths.get(op, "decode_step/sampling") for op in mine
    ]
