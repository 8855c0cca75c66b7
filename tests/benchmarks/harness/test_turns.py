"""Entrants are checked before any is timed, and all that passed take turns in rounds."""

import pytest
import torch

from benchmarks.harness.turns import Check, Contestant, Timer, take_turns


def contestant(
    name: str, order: list[str], check: Check | None = None, ours: bool = True
) -> Contestant:
    def checked() -> Check:
        order.append(f"check {name}")
        return Check() if check is None else check

    def timers() -> dict[str, Timer]:
        order.append(f"capture {name}")

        def read() -> list[float]:
            order.append(name)
            return [3.0, 1.0, 2.0]

        return {"device": read}

    return Contestant(name, checked, timers, ours)


def test_all_are_checked_first_and_then_take_turns() -> None:
    order: list[str] = []
    pair = [contestant(name, order) for name in ("a", "b")]
    outcomes = take_turns(pair, 2, lambda: order.append("pause"))
    assert order[:4] == ["check a", "check b", "capture a", "capture b"]
    assert order[4:] == ["a", "b", "pause"] * 2
    spread = outcomes["a"].spread("device")
    assert spread is not None
    assert spread.rounds == (2.0, 2.0)
    assert outcomes["a"].readings("device") == [3.0, 1.0, 2.0] * 2
    assert outcomes["a"].spread("launched") is None
    assert outcomes["a"].readings("launched") == []


@pytest.mark.parametrize("error", [0.5, float("inf"), float("nan")])
def test_one_that_is_wrong_is_neither_captured_nor_timed(error: float) -> None:
    order: list[str] = []
    wrong = contestant("wrong", order, Check.against_float64(error, 1e-3))
    outcomes = take_turns([wrong, contestant("right", order)], 1)
    assert order == ["check wrong", "check right", "capture right", "right"]
    assert outcomes["wrong"].check.failure is not None
    assert outcomes["wrong"].relative_error == (0.5 if error == 0.5 else None)
    assert outcomes["wrong"].spread("device") is None


@pytest.mark.parametrize("stage", ["check", "timers"])
def test_another_projects_refusal_is_kept_and_our_own_is_a_fault(stage: str) -> None:
    def refuses() -> None:
        raise RuntimeError("no such shape\nat line 3")

    def one(ours: bool) -> Contestant:
        order: list[str] = []
        usual = contestant("a", order, ours=ours)
        check, timers = (refuses, usual.timers) if stage == "check" else (usual.check, refuses)
        return Contestant("a", check, timers, ours)  # type: ignore[arg-type]

    outcome = take_turns([one(False)], 2)["a"]
    assert outcome.check.failure == "not available: no such shape"
    assert outcome.spread("device") is None
    with pytest.raises(RuntimeError):
        take_turns([one(True)], 2)


def test_out_of_memory_is_never_a_refusal() -> None:
    def check() -> Check:
        raise torch.OutOfMemoryError("of 80 GB")

    with pytest.raises(torch.OutOfMemoryError):
        take_turns([Contestant("a", check, dict, ours=False)], 1)
