"""A decode loop of which no window is taken has no cost to record."""

from contextlib import nullcontext

import pytest

from benchmarks.attach import attach_cost
from decodescope.analyzer.errors import DecodescopeError


def test_a_loop_without_a_window_is_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*asked: object) -> None:
        raise DecodescopeError("the socket is taken")

    for name, stand_in in {
        "decode_loop": lambda *asked: nullcontext((1, None)),
        "job_processes": lambda pids: pids,
        "KinetoDoor": nullcontext,
        "quiet_tokens_per_s": lambda clock: 80.0,
        "take_window": refused,
        "_QUIET_S": 0.0,
    }.items():
        monkeypatch.setattr(attach_cost, name, stand_in)
    with pytest.raises(DecodescopeError, match=r"^eager: none of 3 windows: the socket is taken$"):
        attach_cost.measure_variant("tiny", "eager", 8, 8, windows=3, ms=300)
