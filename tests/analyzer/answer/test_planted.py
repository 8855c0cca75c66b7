"""The answer of synthetic traces is what was planted into them."""

import random
from collections import Counter
from functools import cache
from typing import NamedTuple

import pytest

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.analysis import Analysis, analyze
from decodescope.analyzer.reports.user_facts import NOTHING, Given, GivenModel
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import GAP_CLASSES
from tests.helpers.kineto_events import call, op, read, span, trace_of
from tests.helpers.planted.decode_traces import Plan, Step, file_of
from tests.helpers.planted.drawn_steps import US, drawn, jittered, kernels
from tests.helpers.planted.random_plans import random_situation
from tests.helpers.planted.situation import Situation
from tests.helpers.planted.situations import SITUATIONS, situation
from tests.helpers.planted.truth import COMMUNICATION, Parts, Truth, truth_of

SEED = random.randrange(10**6)
OTHERS = {*GAP_CLASSES, COMMUNICATION}
PLAN = Plan(())
RANDOM_PLANS = 40
# Ids are the same in all test processes; a failure shows the seed.
CASES = [
    pytest.param(name, seed, id=f"{name}-{label}")
    for name in SITUATIONS
    for label, seed in (("seed0", 0), ("fresh", SEED))
]


class Planted(NamedTuple):
    """A situation, and each of its files as it is analysed, with what is true of it."""

    situation: Situation
    files: tuple[tuple[Analysis, Truth], ...]


@cache
def planted(name: str, seed: int) -> Planted:
    made = situation(name, seed)
    facts = NOTHING if made.model is None else Given(model=given_model(made.model))
    analyses = [analyze(read(data), facts) for data in made.traces]
    for analysis in analyses:
        check_answer(analysis)
    return Planted(made, tuple(zip(analyses, made.truths, strict=True)))


def given_model(name: str) -> GivenModel:
    shape = read_model_config(name)
    return GivenModel(shape, model_weights(shape, None))


def check_answer(analysis: Analysis) -> None:
    """Invariants of every planted trace."""
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
    situation, files = planted(name, seed)
    for analysis, truth in files:
        if situation.is_exact:
            check_parts(analysis.report.answer, truth, has_roles=situation.has_roles)
        else:
            assert analysis.report.answer.step_ns == pytest.approx(truth.step_ns, rel=0.01)


def check_parts(answer: Answer, truth: Truth, *, has_roles: bool) -> None:
    """The step, its time, and each of its parts to the ns."""
    assert (answer.kind, answer.batch, answer.steps) == (truth.kind, truth.batch, truth.steps)
    parts = {part.part: part.ns for part in answer.parts if part.ns}
    whole = [without_roles(each) for each in truth.parts]
    if truth.interruptions_ns:
        # What a step would take without its interruption is known as well as the others are alike.
        assert answer.step_ns == pytest.approx(truth.step_ns, rel=0.01)
        assert without_roles(parts)["kernels"] in (each["kernels"] for each in whole)
        return
    assert answer.step_ns == truth.step_ns
    if has_roles:
        assert parts in truth.parts
    else:
        assert without_roles(parts) in whole


def without_roles(parts: Parts) -> Parts:
    """The parts with all kernels as one, with copies: some kernels count with these."""
    kernels_ns = sum(ns for part, ns in parts.items() if part not in OTHERS)
    return {part: ns for part, ns in parts.items() if part in OTHERS} | {"kernels": kernels_ns}


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_each_kind_of_step_is_counted(name: str, seed: int) -> None:
    for analysis, truth in planted(name, seed).files:
        kinds: Counter[str] = Counter()
        for row in analysis.report.step_kinds:
            kinds[row.kind] += row.steps
        assert kinds == truth.kinds


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_interruptions_are_set_apart(name: str, seed: int) -> None:
    """The end of a launch call that was held up may count with the interruption."""
    for analysis, truth in planted(name, seed).files:
        least_ns = truth.interruptions_ns
        most_ns = least_ns + PLAN.call_ns * len(analysis.report.interruptions)
        assert least_ns <= analysis.report.answer.interruptions_ns <= most_ns


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_the_bound_is_the_planted_one(name: str, seed: int) -> None:
    situation, files = planted(name, seed)
    assert {analysis.report.answer.bound for analysis, _ in files} == {situation.bound}


@pytest.mark.parametrize("name", ["memory_bound", "slow_kernels"])
def test_the_limit_is_that_of_weights_and_cache(name: str) -> None:
    """Activations of at most 8 tokens are less than 3 % beside them."""
    situation, ((analysis, _),) = planted(name, SEED)
    answer = analysis.report.answer
    assert situation.limit_ns <= answer.limit_ns <= 1.03 * situation.limit_ns
    assert (answer.limit_bound, answer.limit_is_lower_bound) == ("memory", False)
    assert answer.limit_ns == sum(part.limit_ns or 0 for part in answer.parts)


def test_plans_of_any_steps_say_what_is_true_of_them() -> None:
    for number in range(RANDOM_PLANS):
        made = random_situation(random.Random(f"{SEED} {number}"))
        analysis, truth = analyze(read(made.traces[0])), made.truths[0]
        try:
            check_answer(analysis)
            check_parts(analysis.report.answer, truth, has_roles=False)
        except AssertionError as error:
            raise AssertionError(f"random plan {number} of seed {SEED}") from error


def test_steps_of_one_thread_on_two_devices_last_until_the_next_of_their_device() -> None:
    events = []
    for step in range(6):
        at = 100 * US * step
        events += [span(at, at + 9 * US, f"decode_step_{step}"), call(at, at + 4 * US, step + 1)]
        events.append(op(at + 6 * US, at + 36 * US, step + 1, device=step % 2))
    analysis = analyze(trace_of(*events))
    check_answer(analysis)
    assert [step.time_ns for step in analysis.report.steps] == [200 * US] * 4 + [30 * US] * 2
    assert analysis.report.answer.step_ns == 200 * US


@pytest.mark.parametrize("name", ["host_bound", "late_scheduler"])
def test_the_frame_in_which_the_host_was_late_is_named(name: str) -> None:
    for seed in (0, SEED):
        made, ((analysis, _),) = planted(name, seed)
        assert analysis.report.answer.host[0].frame == made.late_frame


def test_a_late_frame_takes_as_long_as_planted() -> None:
    made, ((analysis, _),) = planted("late_scheduler", SEED)
    ((plan,),) = made.files
    assert analysis.report.answer.host[0].ns == plan.steps[0].schedule_ns


def test_two_engines_on_one_device_have_steps_of_their_own() -> None:
    """A step lasts until the next one of its engine; its parts hold ops of both. Of engines with as
    many steps, the first decides."""
    rng = random.Random(SEED)
    plans = []
    for number in (1, 2):
        made = kernels(rng, 3, 8 * US, 12 * US, stream=6 + number)
        steps = jittered(rng, Step(made, "decode", 8, "step[DECODE bs=8]"), 5)
        begin_ns = 10**6 + drawn(rng, 0, 400 * US)
        plans.append(Plan(steps, begin_ns=begin_ns, number=number, pid=number))
    analysis, truth = analyze(read(file_of(tuple(plans)))), truth_of(plans[:1])
    check_answer(analysis)
    answer = analysis.report.answer
    assert (answer.kind, answer.steps, answer.step_ns) == ("decode", 5, truth.step_ns)
    main = analysis.report.main_steps
    assert main.kernels_attributed_ns < main.busy_ns


def test_a_copy_that_only_a_call_names_is_no_op() -> None:
    answer = analyze(trace_of(call(0, 9, 1, name="Memcpy DtoD (Device -> Device)"))).report.answer
    assert (answer.bound, answer.parts, answer.step_ns) == ("unknown", (), None)
