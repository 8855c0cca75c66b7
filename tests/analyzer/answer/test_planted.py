"""The answer of synthetic traces is what was planted into them."""

import random
from functools import cache

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.user_facts import NOTHING, Given, GivenModel
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import GAP_CLASSES
from tests.helpers.kineto_events import read
from tests.helpers.planted.situations import SITUATIONS, Situation, situation
from tests.helpers.planted.truth import COMMUNICATION, COPIES, HOST_CLASSES, Parts, Truth

SEED = random.randrange(10**6)
NOT_KERNELS = {*GAP_CLASSES, COMMUNICATION, COPIES}
CASES = [
    pytest.param(name, seed, id=f"{name}-{seed}") for name in SITUATIONS for seed in (0, SEED)
]


@cache
def planted(name: str, seed: int) -> tuple[Situation, tuple[tuple[Answer, Truth], ...]]:
    """A situation, and for each of its files what the analyzer says and what is true."""
    made = situation(name, seed)
    facts = NOTHING if made.model is None else Given(model=given_model(made.model))
    analyses = [analyze(read(data), facts) for data in made.traces]
    for analysis in analyses:
        check_answer(analysis)
    answers = [analysis.report.answer for analysis in analyses]
    return made, tuple(zip(answers, made.truths, strict=True))


def given_model(name: str) -> GivenModel:
    shape = read_model_config(name)
    return GivenModel(shape, model_weights(shape, None))


def check_answer(analysis: Analysis) -> None:
    """What holds for every planted trace."""
    answer, report = analysis.report.answer, analysis.report
    assert answer.bound != "unknown"
    assert sum(part.ns for part in answer.parts) == answer.whole_ns
    assert min(part.ns for part in answer.parts) >= 0
    assert sum(part.share for part in answer.parts) == pytest.approx(1)
    assert len({part.part for part in answer.parts}) == len(answer.parts)
    assert sum(part.ops for part in answer.parts) <= sum(one.gpu_ops for one in report.devices)
    assert (answer.step is None) == (answer.step_ns is None)
    if answer.step_ns is not None:
        assert answer.whole_ns == answer.step_ns
    if answer.limit_ns is not None:
        assert 0 < answer.limit_ns <= answer.whole_ns
    over_ns = [part.ns if part.over_ns is None else part.over_ns for part in answer.parts]
    assert over_ns == sorted(over_ns, reverse=True)


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_step_time_kinds_and_parts_are_those_planted(name: str, seed: int) -> None:
    made, files = planted(name, seed)
    for answer, truth in files:
        assert (answer.step_ns, answer.steps) == (truth.step_ns, truth.steps)
        assert (answer.kind, answer.batch) == (truth.kind, truth.batch)
        parts = {part.part: part.ns for part in answer.parts if part.ns}
        if made.has_roles:
            assert parts in truth.parts
        else:
            assert without_roles(parts) in map(without_roles, truth.parts)


def without_roles(parts: Parts) -> Parts:
    """The parts with all kernels as one."""
    kernels_ns = sum(ns for part, ns in parts.items() if part not in NOT_KERNELS)
    others = {part: ns for part, ns in parts.items() if part in NOT_KERNELS}
    return others | ({"kernels": kernels_ns} if kernels_ns else {})
